package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func write(t *testing.T, db *store.DB, fn func(ctx context.Context, tx *store.Tx) error) {
	t.Helper()
	if err := db.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, db *store.DB, run string) []Event {
	t.Helper()
	events, err := List(t.Context(), db.Read(), run)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestEventsAreListedInOrderOfTime(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		took := int64(771)
		late := Event{RunID: "r", JobID: "j", At: 20, Type: "agent.execution.end", Source: "agent", DurationMs: &took, Metadata: json.RawMessage(`{"status":"success"}`)}
		early := Event{RunID: "r", At: 10, Type: "orchestrator.dispatch", Source: "orchestrator"}
		write(t, db, func(ctx context.Context, tx *store.Tx) error {
			for _, e := range []Event{late, early, {RunID: "other", At: 1, Type: "x", Source: "agent"}} {
				if err := Append(ctx, tx, e); err != nil {
					return err
				}
			}
			return nil
		})
		if diff := cmp.Diff([]Event{early, late}, list(t, db, "r")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestARunKeepsItsLastEvents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write(t, db, func(ctx context.Context, tx *store.Tx) error {
			for i := range MaxEvents + 3 {
				if err := Append(ctx, tx, Event{RunID: "r", At: int64(i), Type: fmt.Sprint("e", i), Source: "agent"}); err != nil {
					return err
				}
			}
			return nil
		})
		events := list(t, db, "r")
		if len(events) != MaxEvents || events[0].Type != "e3" {
			t.Errorf("%d events, the first is %s", len(events), events[0].Type)
		}
	})
}

func TestAnOversizedDocumentIsLeftOut(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		big := json.RawMessage(`{"a":"` + strings.Repeat("x", maxMetadata) + `"}`)
		write(t, db, func(ctx context.Context, tx *store.Tx) error {
			return Append(ctx, tx, Event{RunID: "r", At: 1, Type: "x", Source: "agent", Metadata: big})
		})
		if events := list(t, db, "r"); len(events) != 1 || events[0].Metadata != nil {
			t.Errorf("got %d events", len(events))
		}
	})
}

func TestSecretsOfAContextAreMasked(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		vars := []wire.EnvVar{
			{Name: "CI_TIER", Value: "gold", Category: "user"},
			{Name: "KICI_AGENT_TOKEN", Value: "kat_clear", Category: "system"},
			{Name: "db_password", Value: "clear", Category: "inherited"},
			{Name: "API_KEY", Value: "clear", Category: "user"},
			{Name: "CLIENT_SECRET_2", Value: "clear", Category: "user"},
			{Name: "HARMLESS", Value: "clear", Category: "secret"},
		}
		write(t, db, func(ctx context.Context, tx *store.Tx) error {
			if err := Context(ctx, tx, "r", "j", 1, wire.Environment{SandboxType: "first"}); err != nil {
				return err
			}
			return Context(ctx, tx, "r", "j", 2, wire.Environment{SandboxType: "bare-metal", EnvVars: vars})
		})
		raw, err := ContextOf(t.Context(), db.Read(), "j")
		if err != nil {
			t.Fatal(err)
		}
		var stored wire.Environment
		if err := json.Unmarshal(raw, &stored); err != nil {
			t.Fatal(err)
		}
		want := wire.Environment{SandboxType: "bare-metal"}
		for _, v := range vars {
			if v.Name != "CI_TIER" {
				v.Value = "***"
			}
			want.EnvVars = append(want.EnvVars, v)
		}
		if diff := cmp.Diff(want, stored); diff != "" {
			t.Error(diff)
		}
		if vars[1].Value != "kat_clear" {
			t.Error("the caller's variables were changed")
		}
	})
}

func TestAnOversizedContextIsRefused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return Context(ctx, tx, "r", "j", 1, wire.Environment{GitRef: strings.Repeat("x", maxContext)})
		})
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("error = %v", err)
		}
	})
}

func TestAJobWithoutContextHasNone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		raw, err := ContextOf(t.Context(), db.Read(), "nobody")
		if err != nil || raw != nil {
			t.Errorf("got %s, %v", raw, err)
		}
	})
}
