package configs

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Check says what is wrong with a value, in Kafka's words, or nothing.
type Check func(value string) (wrong string)

// Validate checks a value.
func (d *Def) Validate(value string) error {
	wrong, shown := d.parse(value), value
	if wrong == "" && d.Check != nil {
		wrong = d.Check(strings.TrimSpace(value))
		if d.Type == Double {
			shown = javaDouble(value)
		}
	}
	if wrong != "" {
		return invalidConfig("Invalid value %s for configuration %s: %s", shown, d.Name, wrong)
	}
	return nil
}

// parse checks that a value is of the type.
func (d *Def) parse(value string) (wrong string) {
	var err error
	name := ""
	text := strings.TrimSpace(value)
	switch d.Type {
	case Boolean:
		if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
			return "Expected value to be either true or false"
		}
	case Short:
		name = "SHORT"
		_, err = strconv.ParseInt(text, 10, 16)
	case Int:
		name = "INT"
		_, err = strconv.ParseInt(text, 10, 32)
	case Long:
		name = "LONG"
		_, err = strconv.ParseInt(text, 10, 64)
	case Double:
		name = "DOUBLE"
		_, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		return "Not a number of type " + name
	}
	return ""
}

// javaDouble writes a number as Java does.
func javaDouble(value string) string {
	f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || strings.ContainsAny(value, "eE") {
		return value
	}
	if s := strconv.FormatFloat(f, 'f', -1, 64); strings.Contains(s, ".") {
		return s
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

func atLeast(low int64) Check {
	return func(value string) string {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n < low {
			return fmt.Sprintf("Value must be at least %d", low)
		}
		return ""
	}
}

func between(low, high int64) Check {
	least := atLeast(low)
	return func(value string) string {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > high {
			return fmt.Sprintf("Value must be no more than %d", high)
		}
		return least(value)
	}
}

// ratio is a number from 0 to 1.
func ratio(value string) string {
	switch f, err := strconv.ParseFloat(value, 64); {
	case err != nil || f != f:
		return "Not a number of type DOUBLE"
	case f < 0:
		return "Value must be at least 0"
	case f > 1:
		return "Value must be no more than 1"
	}
	return ""
}

// gzipLevel is a level of gzip, or -1 for its default.
func gzipLevel(value string) string {
	if value != "-1" && between(1, 9)(value) != "" {
		return "Value must be between 1 and 9 or equal to -1"
	}
	return ""
}

func oneOf(values ...string) Check {
	return func(value string) string {
		if slices.Contains(values, value) {
			return ""
		}
		return "String must be one of: " + strings.Join(values, ", ")
	}
}

// someOf is a list of some of the values, or none of them.
func someOf(values ...string) Check {
	one := oneOf(values...)
	return func(value string) string {
		for _, item := range SplitList(value) {
			if wrong := one(item); wrong != "" {
				return wrong
			}
		}
		return ""
	}
}

// throttled is a list of replicas, or the wildcard.
func throttled(name string) Check {
	replica := regexp.MustCompile(`^[0-9]+:[0-9]+$`)
	return func(value string) string {
		if value == "*" {
			return ""
		}
		for _, item := range SplitList(value) {
			if !replica.MatchString(item) {
				return name + " must be the literal '*' or a list of replicas in the following format: " +
					"[partitionId]:[brokerId],[partitionId]:[brokerId],..."
			}
		}
		return ""
	}
}

var isoDuration = regexp.MustCompile(`(?i)^P(\d+D)?(T(\d+H)?(\d+M)?(\d+([.,]\d{1,9})?S)?)?$`)

// offsetReset is where a share group starts.
func offsetReset(value string) string {
	if value == "earliest" || value == "latest" {
		return ""
	}
	if d, ok := strings.CutPrefix(value, "by_duration:"); ok {
		last := d[max(0, len(d)-1):]
		if isoDuration.MatchString(d) && last != "P" && last != "T" && last != "t" && last != "p" {
			return ""
		}
	}
	return fmt.Sprintf("Invalid value `%s` for configuration share.auto.offset.reset. The value must be either "+
		"'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS.>'.", value)
}

var isoPart = regexp.MustCompile(`(?i)([\d.,]+)([DHMS])`)

// ResetDuration is how long ago records may be that a group begins with, whose
// share.auto.offset.reset is by_duration:PnDTnHnMn.nS.
func ResetDuration(reset string) (time.Duration, error) {
	text, ok := strings.CutPrefix(reset, "by_duration:")
	if wrong := offsetReset(reset); !ok || wrong != "" {
		return 0, fmt.Errorf("share.auto.offset.reset %q is no duration", reset)
	}
	ago := float64(0)
	for _, part := range isoPart.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(strings.ReplaceAll(part[1], ",", "."), 64)
		if err != nil {
			return 0, fmt.Errorf("share.auto.offset.reset %q: %w", reset, err)
		}
		unit := map[string]time.Duration{"D": 24 * time.Hour, "H": time.Hour, "M": time.Minute, "S": time.Second}[strings.ToUpper(part[2])]
		ago += n * float64(unit)
	}
	return time.Duration(min(ago, math.MaxInt64/2)), nil
}

// SplitList is the items of a list value, without the empty ones.
func SplitList(value string) []string {
	var items []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
