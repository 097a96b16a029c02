package report_test

import (
	"regexp"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/server/report"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// A time of day alone would be taken for today's.
func TestTimesOfAnotherDayAreToldWithTheirDate(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	timeAlone := regexp.MustCompile(`[^T\d]\d\d:\d\d:\d\dZ`)
	told := 0
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, db *store.DB) {
				f := newFloor(t, db)
				s.setup(f)
				x, err := report.Explain(t.Context(), db.Read(), "r", "", f.millis+day)
				must(t, err)
				line, err := report.Queue(t.Context(), db.Read(), report.QueueFilter{Now: f.millis + day, Limit: 100})
				must(t, err)
				for _, why := range messages(x, line) {
					if timeAlone.MatchString(why) {
						t.Errorf("no date: %s", why)
					}
					told += strings.Count(why, " since 2")
				}
			})
		})
	}
	if told == 0 {
		t.Error("no situation tells a time")
	}
}

// messages are the sentences of an explanation and of the queue.
func messages(x adminwire.Explanation, line []adminwire.QueueEntry) (out []string) {
	for _, j := range x.Jobs {
		out = append(out, j.Reason.Message)
	}
	for _, e := range line {
		out = append(out, e.Reason.Message)
	}
	return out
}
