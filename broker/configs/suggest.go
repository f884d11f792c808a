package configs

// suggestion is the name that somebody may have meant, as the end of a sentence.
func suggestion(name string) string {
	best, distance := "", 4 // more mistakes than 3 are another name
	for _, d := range Brokers.sorted {
		if d.Scope == Derived {
			continue
		}
		if n := editDistance(name, d.Name); n < distance {
			best, distance = d.Name, n
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// editDistance is how many characters have to be changed, added or left out to make b
// of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
