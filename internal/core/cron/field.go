package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// field bounds the values of one part of an expression; names stand for numbers from low on.
type field struct {
	low, high int
	names     []string
}

var (
	monthNames = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	dayNames   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

	sixtieths = field{low: 0, high: 59}
	dayHours  = field{low: 0, high: 23}
	monthDays = field{low: 1, high: 31}
	months    = field{low: 1, high: 12, names: monthNames}
	weekdays  = field{low: 0, high: 7, names: dayNames} // 7 is Sunday again
	years     = field{low: 1, high: 9999}
)

// parseSchedule reads 5 fields (minute hour day month weekday), 6 with seconds in front, 7 with the year at the end, or a
// nickname.
func parseSchedule(expression string) (*schedule, error) {
	if len(expression) > 1000 {
		return nil, errors.New("too long")
	}
	if long, ok := nicknames[strings.ToLower(strings.TrimSpace(expression))]; ok {
		expression = long
	}
	parts := strings.Fields(strings.ToUpper(expression))
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) == 6 {
		parts = append(parts, "*")
	}
	if len(parts) != 7 {
		return nil, fmt.Errorf("%d fields, expected 5 to 7", len(parts))
	}
	s := &schedule{}
	for _, part := range []struct {
		text string
		of   field
		to   *uint64
	}{
		{parts[0], sixtieths, &s.seconds}, {parts[1], sixtieths, &s.minutes}, {parts[2], dayHours, &s.hours},
		{parts[4], months, &s.months},
	} {
		set, err := part.of.bitmap(part.text)
		if err != nil {
			return nil, err
		}
		*part.to = set
	}
	return s, errors.Join(s.readMonthDays(parts[3]), s.readWeekdays(parts[5]), s.readYears(parts[6]))
}

func isAny(part string) bool { return part == "*" || part == "?" }

func (s *schedule) readMonthDays(part string) error {
	s.anyDay = isAny(part)
	for item := range strings.SplitSeq(part, ",") {
		day, nearest := strings.CutSuffix(item, "W")
		switch {
		case item == "L":
			s.lastDay = true
		case item == "LW":
			s.lastWork = true
		case nearest:
			n, err := monthDays.number(day)
			if err != nil {
				return err
			}
			s.nearest |= 1 << n
		default:
			set, err := monthDays.item(item)
			if err != nil {
				return err
			}
			s.days |= set.bits()
		}
	}
	return nil
}

func (s *schedule) readWeekdays(part string) error {
	part, s.both = strings.CutPrefix(part, "+")
	s.anyWeekday = isAny(part)
	for item := range strings.SplitSeq(part, ",") {
		if err := s.readWeekday(item); err != nil {
			return err
		}
	}
	return nil
}

// readWeekday reads a value or range, with the number of the week after #, or L for the last.
func (s *schedule) readWeekday(item string) error {
	day, which, numbered := strings.Cut(item, "#")
	if last, ok := strings.CutSuffix(item, "L"); ok && !numbered && last != "" {
		day, which, numbered = last, "L", true
	}
	set, err := weekdays.item(day)
	if err != nil {
		return err
	}
	days := set.bits()
	days = days&0x7F | days>>7&1 // 7 is Sunday
	if !numbered {
		s.weekdays |= days
		return nil
	}
	n := 0
	if which != "L" {
		if n, err = (field{low: 1, high: 5}).number(which); err != nil {
			return err
		}
	}
	for d := range s.nth {
		if days>>d&1 == 0 {
			continue
		}
		if which == "L" {
			s.nth[d].last = true
		} else {
			s.nth[d].of |= 1 << n
		}
	}
	return nil
}

func (s *schedule) readYears(part string) error {
	if isAny(part) {
		return nil
	}
	s.years = map[int]bool{}
	for item := range strings.SplitSeq(part, ",") {
		set, err := years.item(item)
		if err != nil {
			return err
		}
		for y := set.low; y <= set.high; y += set.step {
			s.years[y] = true
		}
	}
	return nil
}

// span is the values from low to high in steps.
type span struct{ low, high, step int }

func (s span) bits() (set uint64) {
	for v := s.low; v <= s.high; v += s.step {
		set |= 1 << v
	}
	return set
}

func (f field) bitmap(part string) (set uint64, err error) {
	for item := range strings.SplitSeq(part, ",") {
		s, err := f.item(item)
		if err != nil {
			return 0, err
		}
		set |= s.bits()
	}
	return set, nil
}

// item reads *, a value, a range, or one of the first and the last with a step.
func (f field) item(item string) (span, error) {
	values, step, stepped := strings.Cut(item, "/")
	s := span{low: f.low, high: f.high, step: 1}
	if low, high, ranged := strings.Cut(values, "-"); ranged {
		var err, err2 error
		s.low, err = f.number(low)
		s.high, err2 = f.number(high)
		if err := errors.Join(err, err2); err != nil {
			return span{}, err
		}
		if s.low > s.high {
			return span{}, fmt.Errorf("range %q is reversed", values)
		}
	} else if !isAny(values) {
		if stepped {
			return span{}, fmt.Errorf("%q: a step needs * or a range", item)
		}
		n, err := f.number(values)
		return span{n, n, 1}, err
	}
	if !stepped {
		return s, nil
	}
	n, err := strconv.Atoi(step)
	if err != nil || n < 1 || n > f.high-f.low+1 || strings.HasPrefix(step, "+") {
		return span{}, fmt.Errorf("step %q is out of range", step)
	}
	s.step = n
	return s, nil
}

func (f field) number(text string) (int, error) {
	for i, name := range f.names {
		if text == name {
			return f.low + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.low || n > f.high || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("%q is not in %d to %d", text, f.low, f.high)
	}
	return n, nil
}
