package cron

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"kici/internal/vectors"

	"pgregory.net/rapid"
)

func instantOf(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return at
}

func TestPrevious(t *testing.T) {
	tests := []struct{ name, expression, zone, now, want string }{
		{"limited to a short month, asked later", "0 3 * 6 *", "UTC", "2026-07-15T10:00:00Z", "2026-06-30T03:00:00Z"},
		{"leap day on a Monday", "0 0 29 2 +MON", "UTC", "2023-01-01T00:00:00Z", "2016-02-29T00:00:00Z"},
		{"last weekday of a month", "0 0 LW * *", "UTC", "2026-06-15T00:00:00Z", "2026-05-29T00:00:00Z"},
		{"first is a Saturday", "0 0 1W * *", "UTC", "2026-08-20T00:00:00Z", "2026-08-03T00:00:00Z"},
		{"last Friday", "0 0 * * 5L", "UTC", "2026-03-15T00:00:00Z", "2026-02-27T00:00:00Z"},
		{"question mark is a star", "0 0 ? * 1", "UTC", "2026-03-15T00:00:00Z", "2026-03-09T00:00:00Z"},
		{"sevens wrap to Sunday", "0 0 * * 5-7", "UTC", "2026-03-15T12:00:00Z", "2026-03-15T00:00:00Z"},
		{"every second over an overlap", "* * * * * *", "America/New_York", "2025-11-02T06:30:00Z", "2025-11-02T05:59:59Z"},
		{"skipped time fires after the gap", "30 2 * * *", "America/New_York", "2026-03-08T07:31:00Z", "2026-03-08T07:30:00Z"},
		{"skipped time has not come yet", "30 2 * * *", "America/New_York", "2026-03-08T07:30:00Z", "2026-03-07T07:30:00Z"},
		{"later wall time, earlier instant", "30 2,3 * * *", "America/New_York", "2026-03-09T00:00:00Z", "2026-03-08T07:30:00Z"},
		{"gap of half an hour", "15 2 4 10 *", "Australia/Lord_Howe", "2026-10-05T00:00:00Z", "2026-10-03T15:45:00Z"},
		{"a year long past", "0 0 0 1 1 * 1999", "UTC", "2026-01-01T00:00:00Z", "1999-01-01T00:00:00Z"},
		{"a year to come", "0 0 0 1 1 * 2999", "UTC", "2026-01-01T00:00:00Z", ""},
		{"nickname in capitals", "@Daily", "", "2026-03-15T10:00:00Z", "2026-03-15T00:00:00Z"},
		{"names in any case", "0 0 * feb Fri", "UTC", "2026-03-15T00:00:00Z", "2026-02-27T00:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, ok, err := Previous(tt.expression, tt.zone, instantOf(tt.now))
			if err != nil || ok != (tt.want != "") || ok && !at.Equal(instantOf(tt.want)) {
				t.Errorf("%v, %v, %v; want %s", at, ok, err, tt.want)
			}
		})
	}
}

func TestPreviousRefuses(t *testing.T) {
	for _, expression := range []string{
		"", "* * * *", "* * * * * * * *", "60 * * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "1/5 * * * *", "@reboot",
		"* * L-2 * *", "* * * * L", "* * * * 5#6", "*/61 * * * *", "1,,2 * * * *", "+1 * * * *", "-1 * * * *", "1- * * * *",
		"* * 32W * *", "TZ=UTC 0 0 * * *", "@every 5m",
	} {
		if err := Check(expression, "UTC"); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", expression, err)
		}
	}
	for _, zone := range []string{"Mars/Base", "Local", "../UTC"} {
		if err := Check("0 0 * * *", zone); !errors.Is(err, ErrInvalid) {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
}

// The latest time before now is also the latest before any moment between the two.
func TestPreviousIsStableUntilTheNextTime(t *testing.T) {
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"}
	expressions := []string{
		"*/7 * * * *", "30 2 * * *", "0 0 L * *", "15 1-3 * * 0", "0 9 15W * *", "59 23 * * 5#2", "*/20 * * * * *", "0 3 * 6 *",
	}
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom(expressions).Draw(t, "expression")
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		now := time.Unix(rapid.Int64Range(1.2e9, 1.9e9).Draw(t, "now"), 0).UTC()
		at, ok, err := Previous(expression, zone, now)
		if err != nil || !ok || !at.Before(now) {
			t.Fatalf("%v, %v, %v", at, ok, err)
		}
		between := at.Add(time.Duration(rapid.Int64Range(1, int64(now.Sub(at)/time.Second)).Draw(t, "after")) * time.Second)
		if again, _, _ := Previous(expression, zone, between); !again.Equal(at) {
			t.Fatalf("before %v it is %v, before %v it is %v", now, at, between, again)
		}
	})
}

func FuzzPrevious(f *testing.F) {
	for _, c := range vectors.LoadKind(f, "triggers.json", "cron") {
		var in struct{ Cron string }
		if err := json.Unmarshal(c.Input, &in); err != nil {
			f.Fatal(err)
		}
		f.Add(in.Cron, int64(1773570000))
	}
	for _, s := range []string{"* * * * *", "0 0 15W,L * 5#2", "*/10 1-5/2 L * FRI#L", "0 0 0 1 1 * 2025", "@daily", "0 0 * * +MON,7"} {
		f.Add(s, int64(1773570000))
	}
	f.Fuzz(func(t *testing.T, expression string, unix int64) {
		now := time.Unix(unix%4e9, 0)
		at, ok, err := Previous(expression, "Europe/Berlin", now)
		if err == nil && ok && !at.Before(now) {
			t.Errorf("%q before %v gives %v", expression, now, at)
		}
	})
}

func TestVectorsCron(t *testing.T) {
	for _, c := range vectors.LoadKind(t, "triggers.json", "cron") {
		t.Run(c.Name, func(t *testing.T) {
			var in struct {
				Cron, Timezone string
				Now            time.Time
			}
			var want struct {
				Previous *time.Time
				Error    string
			}
			if err := errors.Join(json.Unmarshal(c.Input, &in), json.Unmarshal(c.Expected, &want)); err != nil {
				t.Fatal(err)
			}
			at, ok, err := Previous(in.Cron, in.Timezone, in.Now)
			switch {
			case want.Error != "":
				if want.Error != "invalid" || !errors.Is(err, ErrInvalid) {
					t.Errorf("%v, %v; want error %s", at, err, want.Error)
				}
			case err != nil:
				t.Error(err)
			case ok != (want.Previous != nil) || ok && !at.Equal(*want.Previous):
				t.Errorf("%v, %v; want %v", at, ok, want.Previous)
			}
		})
	}
}

func BenchmarkPreviousYearly(b *testing.B) {
	now := instantOf("2026-12-31T23:59:59Z")
	for b.Loop() {
		if _, ok, err := Previous("0 0 1 1 *", "Europe/Rome", now); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}
