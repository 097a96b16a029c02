// Package cron finds the times that a schedule names, in the dialect that authors' tools take: five to seven fields, L, W, #
// and nicknames, in any time zone.
package cron

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
	_ "time/tzdata" // zones must not depend on what the host has installed
)

// ErrInvalid is wrapped by every error about an expression or a time zone.
var ErrInvalid = errors.New("invalid schedule")

// searchYears bounds how far back a time is looked for. A date that exists at all comes up within 40 years, the greatest
// distance between a 29th of February and the next on the same day of the week.
const searchYears = 41

// Previous gives the latest time that the expression names strictly before the second of now, in the named IANA zone (""
// is UTC); ok is false when there is none, as for the 31st of February. A time that a change of the clock skips fires as
// much later as the clock jumped; of one that comes twice, the first counts.
func Previous(expression, zone string, now time.Time) (at time.Time, ok bool, err error) {
	s, err := parseSchedule(expression)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("%w: %q: %w", ErrInvalid, expression, err)
	}
	location, err := loadZone(zone)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("%w: zone %q: %w", ErrInvalid, zone, err)
	}
	at, ok = s.previous(now.Truncate(time.Second), location)
	return at.UTC(), ok, nil
}

// Check tells whether Previous would take the expression and the zone.
func Check(expression, zone string) error {
	_, _, err := Previous(expression, zone, time.Unix(0, 0))
	return err
}

func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("not a zone") // it would mean another one on every server
	}
	return time.LoadLocation(name)
}

// schedule is a parsed expression. Sets are bitmaps; bit n is the value n.
type schedule struct {
	seconds, minutes, hours, months uint64

	days       uint64 // of the month
	lastDay    bool   // L
	nearest    uint64 // 15W: the weekday nearest to it
	lastWork   bool   // LW
	anyDay     bool   // the field is *
	weekdays   uint64 // 0 is Sunday
	nth        [7]nth // 5#2, 5#L
	anyWeekday bool
	both       bool // +MON: day and weekday must agree, otherwise either is enough

	years map[int]bool // nil: any
}

// nth says which of a month's days of one weekday count.
type nth struct {
	of   uint64
	last bool
}

// previous searches day by day, backwards, for the latest time before limit.
func (s *schedule) previous(limit time.Time, zone *time.Location) (time.Time, bool) {
	local := limit.In(zone)
	// A clock change may carry a time of tomorrow's date to before now, so the search begins a day ahead.
	day := time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, time.UTC)
	oldest := day.Year() - searchYears
	if s.years != nil {
		oldest = day.Year()
		for y := range s.years {
			oldest = min(oldest, y)
		}
	}
	for day.Year() >= oldest {
		if s.months>>int(day.Month())&1 == 0 || s.years != nil && !s.years[day.Year()] {
			day = time.Date(day.Year(), day.Month(), 0, 0, 0, 0, 0, time.UTC) // the last day of the month before
			continue
		}
		if s.hasDay(day) {
			if at, ok := s.latestOn(day, limit, zone); ok {
				return at, true
			}
		}
		day = day.AddDate(0, 0, -1)
	}
	return time.Time{}, false
}

// hasDay tells whether the date fits the day fields.
func (s *schedule) hasDay(day time.Time) bool {
	switch {
	case s.anyDay && s.anyWeekday:
		return true
	case s.anyDay:
		return s.hasWeekday(day)
	case s.anyWeekday:
		return s.hasMonthDay(day)
	case s.both:
		return s.hasMonthDay(day) && s.hasWeekday(day)
	}
	return s.hasMonthDay(day) || s.hasWeekday(day)
}

func (s *schedule) hasMonthDay(day time.Time) bool {
	d, last := day.Day(), lastOfMonth(day)
	if s.days>>d&1 == 1 || s.lastDay && d == last {
		return true
	}
	if s.lastWork && d == nearestWorkday(day, last) {
		return true
	}
	for set := s.nearest; set != 0; set &= set - 1 {
		if target := bits.TrailingZeros64(set); target <= last && d == nearestWorkday(day, target) {
			return true
		}
	}
	return false
}

func (s *schedule) hasWeekday(day time.Time) bool {
	w := day.Weekday()
	n := s.nth[w]
	return s.weekdays>>int(w)&1 == 1 || n.of>>((day.Day()-1)/7+1)&1 == 1 || n.last && day.Day()+7 > lastOfMonth(day)
}

func lastOfMonth(day time.Time) int {
	return time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// nearestWorkday gives the day from Monday to Friday nearest to target, within the month of day.
func nearestWorkday(day time.Time, target int) int {
	switch at := time.Date(day.Year(), day.Month(), target, 0, 0, 0, 0, time.UTC); at.Weekday() {
	case time.Saturday:
		if target == 1 {
			return 3
		}
		return target - 1
	case time.Sunday:
		if target == lastOfMonth(day) {
			return target - 2
		}
		return target + 1
	}
	return target
}

// latestOn gives the latest time on that date before limit. Where the clocks change, an earlier wall time may be a later
// instant, but by no more than they jump.
func (s *schedule) latestOn(day, limit time.Time, zone *time.Location) (best time.Time, ok bool) {
	least, most := offsetRange(day, zone)
	jump := int((most - least) / time.Second)
	ceiling := min(daySeconds, int(limit.Add(most).Unix()-day.Unix())) - 1
	stop := 0
	for second := s.secondOfDay(ceiling); second >= stop; second = s.secondOfDay(second - 1) {
		at := instant(day.Add(time.Duration(second)*time.Second), zone)
		if !at.Before(limit) || ok && !at.After(best) {
			continue
		}
		if !ok {
			stop = max(0, second-jump)
		}
		best, ok = at, true
	}
	return best, ok
}

const daySeconds = 24 * 60 * 60

// secondOfDay gives the latest wall time up to ceiling, both in seconds of the day, -1 when there is none.
func (s *schedule) secondOfDay(ceiling int) int {
	if ceiling < 0 {
		return -1
	}
	top := ceiling / 3600
	for h := highest(s.hours, top); h >= 0; h = highest(s.hours, h-1) {
		rest := 3599
		if h == top {
			rest = ceiling % 3600
		}
		for m := highest(s.minutes, rest/60); m >= 0; m = highest(s.minutes, m-1) {
			last := 59
			if m == rest/60 {
				last = rest % 60
			}
			if sec := highest(s.seconds, last); sec >= 0 {
				return h*3600 + m*60 + sec
			}
		}
	}
	return -1
}

// highest gives the greatest member of the set up to limit, -1 when there is none.
func highest(set uint64, limit int) int {
	if limit < 0 {
		return -1
	}
	return bits.Len64(set&(1<<(limit+1)-1)) - 1
}

// offsets gives the zone's distance from UTC a day before and a day after the wall time, which brackets any one change.
func offsets(wall time.Time, zone *time.Location) (before, after time.Duration) {
	at := func(t time.Time) time.Duration {
		_, seconds := t.In(zone).Zone()
		return time.Duration(seconds) * time.Second
	}
	return at(wall.AddDate(0, 0, -1)), at(wall.AddDate(0, 0, 1))
}

// offsetRange gives the least and the greatest distance around the date.
func offsetRange(day time.Time, zone *time.Location) (least, most time.Duration) {
	a, b := offsets(day, zone)
	c, d := offsets(day.AddDate(0, 0, 1), zone)
	return min(a, b, c, d), max(a, b, c, d)
}

// instant gives the time at which the zone's clocks show wall (given as if it were UTC): the first of two, and for one
// that they skip, as much later as they jump.
func instant(wall time.Time, zone *time.Location) time.Time {
	before, after := offsets(wall, zone)
	early, late := wall.Add(-before), wall.Add(-after)
	_, seconds := early.In(zone).Zone()
	if earlyHolds := time.Duration(seconds)*time.Second == before; earlyHolds || before == after {
		return early
	}
	_, seconds = late.In(zone).Zone()
	if time.Duration(seconds)*time.Second == after {
		return late
	}
	return early // in the gap
}
