package auth

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func record(t *testing.T, tokens *Tokens, entries ...Entry) {
	t.Helper()
	err := tokens.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for _, e := range entries {
			if err := tokens.Record(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAccessLogPages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		for i := range 7 {
			if i%2 == 0 {
				clock.advance(time.Second) // two entries share a time
			}
			record(t, tokens, Entry{ActorType: ActorAPIKey, ActorID: "t1", Action: "run.cancel", TargetType: "run", TargetID: fmt.Sprint(i)})
		}
		var got []string
		cursor := ""
		for {
			entries, next, err := tokens.AccessLog(t.Context(), AccessFilter{Limit: 3, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				got = append(got, e.TargetID)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if diff := cmp.Diff([]string{"6", "5", "4", "3", "2", "1", "0"}, got); diff != "" {
			t.Error(diff)
		}
		if _, _, err := tokens.AccessLog(t.Context(), AccessFilter{Cursor: "!"}); !errors.Is(err, ErrCursor) {
			t.Errorf("bad cursor: %v", err)
		}
	})
}

func TestAccessLogFilters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		start := clock.now.UnixMilli()
		full := Entry{OrgID: "org-1", ActorType: ActorAPIKey, ActorID: "t1", ActorMeta: map[string]any{"role": "owner"},
			Action: "secret.set", Source: SourceHTTP, TargetType: "secret_scope", TargetID: "prod", Outcome: OutcomeError,
			RoutingKey: "github:1", RequestID: "q", Error: `Disk 100% <full>`, Meta: map[string]any{"n": 1.0}}
		record(t, tokens, full)
		clock.advance(time.Second)
		record(t, tokens, Entry{ActorType: ActorSystem, ActorID: "s", Action: "run.cancel", Source: SourceCLI})
		tests := []struct {
			name   string
			filter AccessFilter
			want   int
		}{
			{"all", AccessFilter{}, 2},
			{"org", AccessFilter{OrgID: "org-1"}, 1},
			{"instance", AccessFilter{OrgID: InstanceOrg}, 1},
			{"actor", AccessFilter{ActorType: ActorSystem, ActorID: "s"}, 1},
			{"action", AccessFilter{Action: "secret.set", Source: SourceHTTP, Outcome: OutcomeError}, 1},
			{"target", AccessFilter{TargetType: "secret_scope", TargetID: "prod"}, 1},
			{"other target", AccessFilter{TargetID: "prod2"}, 0},
			{"from", AccessFilter{From: start + 1}, 1},
			{"to", AccessFilter{To: start + 1000}, 1},
			{"text", AccessFilter{Text: "100% <FULL"}, 1},
			{"text with a wildcard", AccessFilter{Text: "1_0"}, 0},
		}
		for _, tt := range tests {
			got, _, err := tokens.AccessLog(t.Context(), tt.filter)
			if err != nil || len(got) != tt.want {
				t.Errorf("%s: %d entries, %v", tt.name, len(got), err)
			}
		}
		list, _, _ := tokens.AccessLog(t.Context(), AccessFilter{OrgID: "org-1"})
		got, err := tokens.Access(t.Context(), "org-1", list[0].ID)
		full.ID, full.At = list[0].ID, start
		if diff := cmp.Diff(full, got); err != nil || diff != "" {
			t.Errorf("Access: %v %s", err, diff)
		}
		if _, err := tokens.Access(t.Context(), "org-2", list[0].ID); err != ErrNotFound {
			t.Errorf("other organisation: %v", err)
		}
	})
}

func TestReadsAreSampled(t *testing.T) {
	e := Entry{ActorType: ActorAPIKey, ActorID: "tok-1", RequestID: "req-1"} // 0.134 of the range
	for action, want := range map[string]bool{"backend.list.read": true, "step.logs.read": false, "run.cancel": true, "unknown": true} {
		if e.Action = action; Sampled(e) != want {
			t.Errorf("%s: %v", action, !want)
		}
	}
	e.Action, e.Outcome = "step.logs.read", OutcomeDenied
	if !Sampled(e) {
		t.Error("a denial is not written")
	}
	e.Action, e.Outcome = "runs.list.read", ""
	written := 0
	for i := range 1000 {
		if e.RequestID = fmt.Sprint("req-", i); Sampled(e) {
			written++
		}
	}
	if written < 30 || written > 70 {
		t.Errorf("%d of 1000 written", written)
	}
}

func TestNoteNeverFails(t *testing.T) {
	db := storetest.SQLite(t)
	tokens, _ := newTokens(db)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the caller is gone
	tokens.Note(ctx, Entry{Action: "run.payload.read"})
	tokens.Note(ctx, Entry{Action: "runs.list.read", RequestID: "unsampled"})
	if got, _, err := tokens.AccessLog(t.Context(), AccessFilter{}); err != nil || len(got) != 1 {
		t.Errorf("%d noted, %v", len(got), err)
	}
	exec(t, db, `DROP TABLE access_log`)
	tokens.Note(t.Context(), Entry{Action: "run.payload.read"})
}

func TestPurgeKeepsEachClassItsTime(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		record(t, tokens, Entry{Action: "runs.list.read"}, Entry{Action: "runs.list.read", Outcome: OutcomeDenied},
			Entry{Action: "run.cancel"}, Entry{Action: "secret.set"})
		left := func() int {
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := tokens.PurgeAccessTx(ctx, tx)
				return err
			})
			list, _, listErr := tokens.AccessLog(t.Context(), AccessFilter{})
			if err != nil || listErr != nil {
				t.Fatal(err, listErr)
			}
			return len(list)
		}
		var got []int
		for _, days := range []int{29, 31 - 29, 181 - 31, 366 - 181} {
			clock.advance(time.Duration(days) * 24 * time.Hour)
			got = append(got, left())
		}
		if diff := cmp.Diff([]int{4, 3, 1, 0}, got); diff != "" {
			t.Error(diff)
		}
	})
}
