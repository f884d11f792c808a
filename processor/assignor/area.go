package assignor

import (
	"cmp"
	"slices"
)

// Span is a half-open interval of units.
type Span struct{ From, To int64 }

// Area is a set of units: spans in order that neither overlap nor touch. Its operations
// return other areas and leave it as it is.
type Area []Span

// NewArea is the area of some spans, in any order.
func NewArea(spans ...Span) (a Area) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(x, y Span) int { return cmp.Compare(x.From, y.From) })
	for _, s := range spans {
		switch n := len(a); {
		case s.From >= s.To:
		case n > 0 && s.From <= a[n-1].To:
			a[n-1].To = max(a[n-1].To, s.To)
		default:
			a = append(a, s)
		}
	}
	return a
}

// Empty tells that there is no unit in the area.
func (a Area) Empty() bool { return len(a) == 0 }

// Len is the number of units.
func (a Area) Len() (n int64) {
	for _, s := range a {
		n += s.To - s.From
	}
	return n
}

// Contains tells whether the unit is in the area.
func (a Area) Contains(unit int64) bool {
	i, found := slices.BinarySearchFunc(a, unit, func(s Span, u int64) int { return cmp.Compare(s.From, u) })
	return found || i > 0 && unit < a[i-1].To
}

// Union is what is in either.
func (a Area) Union(b Area) Area { return NewArea(slices.Concat(a, b)...) }

// Intersect is what is in both.
func (a Area) Intersect(b Area) Area {
	var both []Span
	for i, j := 0, 0; i < len(a) && j < len(b); {
		both = append(both, Span{max(a[i].From, b[j].From), min(a[i].To, b[j].To)})
		if a[i].To < b[j].To {
			i++
		} else {
			j++
		}
	}
	return NewArea(both...)
}

// Minus is what is in a and not in b.
func (a Area) Minus(b Area) (left Area) {
	j := 0
	for _, s := range a {
		for j < len(b) && b[j].To <= s.From {
			j++
		}
		for k := j; k < len(b) && b[k].From < s.To; k++ {
			if s.From < b[k].From {
				left = append(left, Span{s.From, b[k].From})
			}
			s.From = b[k].To
		}
		if s.From < s.To {
			left = append(left, s)
		}
	}
	return left
}

// Equal tells whether both have the same units.
func (a Area) Equal(b Area) bool { return slices.Equal(a, b) }
