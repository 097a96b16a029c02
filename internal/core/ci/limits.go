package ci

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Limits on what a run may hold and on what leaves the server. Texts and lists are cut; a plan with too many jobs is
// refused, since cutting jobs off could turn a run green with work missing.
const (
	MaxJobsPerRun       = 1024
	MaxMatrix           = 256
	MaxFanoutHosts      = 1024
	MaxName             = 128
	MaxRepository       = 256
	MaxText             = 2000
	MaxListEntries      = 30
	MaxDispatchAttempts = 5
)

// DefaultOrg is the organisation that always exists.
const DefaultOrg = "default"

// CutText is s without NUL and invalid UTF-8, at most MaxText characters long.
func CutText(s string) string { return cut(s, MaxText) }

// CutName is s without NUL and invalid UTF-8, at most MaxName characters long.
func CutName(s string) string { return cut(s, MaxName) }

func cut(s string, limit int) string {
	s = CleanText(s)
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	runes := 0
	for i := range s {
		if runes == limit {
			return s[:i]
		}
		runes++
	}
	return s
}

// The first and the last moment that a text with a year of four digits can tell, epoch milliseconds.
const (
	minMillis = -62_135_596_800_000
	maxMillis = 253_402_300_799_999
)

// Moment is a time in epoch milliseconds that somebody else told, or the nearest that can be written down.
func Moment(millis int64) time.Time {
	return time.UnixMilli(min(max(millis, minMillis), maxMillis)).UTC()
}

// CleanText replaces what one of the two database engines would refuse: NUL and invalid UTF-8. Every text from outside
// passes through it once, on the way in.
func CleanText(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
