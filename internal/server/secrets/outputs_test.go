package secrets

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/kit/seal"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// sealFor seals outputs as an agent does: with one pair for all of them.
func sealFor(t testing.TB, runPublicKey string, outputs map[string]string) map[string]wire.SecretOutput {
	t.Helper()
	own, err := seal.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	agreed, err := seal.Agree(own.Private, runPublicKey, seal.RunOutputs)
	if err != nil {
		t.Fatal(err)
	}
	sealed := map[string]wire.SecretOutput{}
	for key, value := range outputs {
		sealed[key] = wire.SecretOutput{AgentPublicKey: own.Public, Encrypted: agreed.Seal([]byte(value))}
	}
	return sealed
}

// pair is a key pair of a run, its private half sealed.
type pair struct{ public, private string }

func newPair(t testing.TB, s *Store) (p pair) {
	t.Helper()
	var err error
	if p.public, p.private, err = s.NewRunKey(); err != nil {
		t.Fatal(err)
	}
	return p
}

func storeOutputs(t *testing.T, s *Store, run, job string, key pair, sealed map[string]wire.SecretOutput) (dropped []string) {
	t.Helper()
	must(t, s.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		dropped, err = s.StoreOutputsTx(ctx, tx, run, job, key.private, sealed)
		return err
	}))
	return dropped
}

// giveOutputs stores outputs of a run as they come from an agent.
func giveOutputs(t *testing.T, s *Store, run string, outputs map[string]string) (dropped []string) {
	t.Helper()
	key := newPair(t, s)
	return storeOutputs(t, s, run, "job", key, sealFor(t, key.public, outputs))
}

func forgetRun(t *testing.T, s *Store, run string) {
	t.Helper()
	must(t, s.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return s.ForgetRunTx(ctx, tx, run) }))
}

// outputNames lists the outputs that a run has, each as <job>/<key>.
func outputNames(t *testing.T, s *Store, run, key string) (names []string) {
	t.Helper()
	all, err := s.Outputs(t.Context(), run, key)
	must(t, err)
	for _, o := range all {
		if o.Value != "" || o.CreatedAt != start.UnixMilli() {
			t.Errorf("output %s of %s at %d is listed with value %q", o.Key, o.JobID, o.CreatedAt, o.Value)
		}
		names = append(names, o.JobID+"/"+o.Key)
	}
	return names
}

func TestOutputsReachDependantsInTheOrderOfTheirNeeds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, ctx := newStore(t, db), t.Context()
		key := newPair(t, s)
		if raw, err := base64.StdEncoding.DecodeString(key.public); err != nil || len(raw) != 44 {
			t.Fatalf("public key %q is not the base64 of 44 bytes", key.public)
		}
		for job, outputs := range map[string]map[string]string{
			"a": {"TOKEN": "of a", "A": "é\n\x00"},
			"b": {"TOKEN": "of b", "EMPTY": ""},
			"c": {"TOKEN": "of c"},
		} {
			if dropped := storeOutputs(t, s, "run", job, key, sealFor(t, key.public, outputs)); len(dropped) != 0 {
				t.Errorf("job %s: dropped %q", job, dropped)
			}
		}
		for _, tt := range []struct {
			needs []string
			want  map[string]string
		}{
			{nil, map[string]string{}},
			{[]string{"a", "b"}, map[string]string{"TOKEN": "of b", "A": "é\n\x00", "EMPTY": ""}},
			{[]string{"b", "a"}, map[string]string{"TOKEN": "of a", "A": "é\n\x00", "EMPTY": ""}},
			{[]string{"c", "stranger"}, map[string]string{"TOKEN": "of c"}},
		} {
			got, err := s.OutputsOf(ctx, "run", tt.needs)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("outputs for a job that needs %q: %v %s", tt.needs, err, diff)
			}
		}
		if got, err := s.OutputsOf(ctx, "other", []string{"a"}); err != nil || len(got) != 0 {
			t.Errorf("outputs of another run: %d, %v", len(got), err)
		}
		if diff := cmp.Diff([]string{"a/A", "a/TOKEN", "b/EMPTY", "b/TOKEN", "c/TOKEN"}, outputNames(t, s, "run", "")); diff != "" {
			t.Errorf("names: %s", diff)
		}
		if diff := cmp.Diff([]string{"b/EMPTY"}, outputNames(t, s, "run", "EMPTY")); diff != "" {
			t.Errorf("of one name: %s", diff)
		}
	})
}

// TestTheWorkedExampleOfTheProtocol stores what the example's agent sent for the example's run.
func TestTheWorkedExampleOfTheProtocol(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		der := append([]byte("\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x6e\x04\x22\x04\x20"), strings.Repeat("\x11", 32)...)
		private, _, err := s.keys.Seal([]byte(base64.StdEncoding.EncodeToString(der)), "ephemeral-private-key")
		must(t, err)
		const public = "MCowBQYDK2VuAyEAe06Qm75//kTEZaIgA31gjuNYl9Me+XLwf3SJLLD3PxM="
		dropped := storeOutputs(t, s, "run", "job", pair{public, private}, map[string]wire.SecretOutput{"TOKEN": {
			AgentPublicKey: "MCowBQYDK2VuAyEAD6poTtKIZ7l/Smot7l34zpdOdrcBjj8iocTPJnhXDyA=",
			Encrypted:      "AAECAwQFBgcICQoLYAbKnUVmpS1zsZ2X48WHjP6jfa585cBHyDoyqWc=",
		}})
		got, err := s.OutputsOf(t.Context(), "run", []string{"job"})
		if diff := cmp.Diff(map[string]string{"TOKEN": "s3cr3t-output"}, got); err != nil || diff != "" || len(dropped) != 0 {
			t.Errorf("%v, dropped %q %s", err, dropped, diff)
		}
	})
}

func TestWhatCannotBeKeptIsDroppedAndTheRestStays(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		key, other := newPair(t, s), newPair(t, s)
		sealed := sealFor(t, key.public, map[string]string{"GOOD": "v", "": "v", "nul\x00": "v", strings.Repeat("n", maxName+1): "v",
			"LARGE": strings.Repeat("v", MaxValue+1), "LARGEST": strings.Repeat("v", MaxValue), "BINARY": "\xff"})
		sealed["FOREIGN"] = sealFor(t, other.public, map[string]string{"FOREIGN": "v"})["FOREIGN"]
		sealed["BROKEN"] = wire.SecretOutput{AgentPublicKey: sealed["GOOD"].AgentPublicKey, Encrypted: "AAAA"}
		sealed["NOKEY"] = wire.SecretOutput{AgentPublicKey: "!", Encrypted: sealed["GOOD"].Encrypted}
		dropped := storeOutputs(t, s, "run", "job", key, sealed)
		want := []string{"", "BINARY", "BROKEN", "FOREIGN", "LARGE", "NOKEY", strings.Repeat("n", maxName+1), "nul\x00"}
		if diff := cmp.Diff(want, dropped); diff != "" {
			t.Errorf("dropped (- want, + got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"job/GOOD", "job/LARGEST"}, outputNames(t, s, "run", "")); diff != "" {
			t.Errorf("kept: %s", diff)
		}
	})
}

func TestAJobKeepsABoundedNumberOfOutputs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		outputs := map[string]string{}
		for i := range maxOutputs + 2 {
			outputs[fmt.Sprintf("K%03d", i)] = "v"
		}
		dropped := giveOutputs(t, s, "run", outputs)
		if diff := cmp.Diff([]string{"K256", "K257"}, dropped); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOutputsOfARunWithoutAKeyAreDropped(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		sealed := sealFor(t, newPair(t, s).public, map[string]string{"A": "v", "B": "v"})
		for _, private := range []string{"", "AAAA", newPair(t, s).private} {
			if diff := cmp.Diff([]string{"A", "B"}, storeOutputs(t, s, "run", "job", pair{private: private}, sealed)); diff != "" {
				t.Errorf("by the key %q: %s", private, diff)
			}
		}
	})
}

func TestOutputsAtRestAreBoundToTheirRun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, ctx := newStore(t, db), t.Context()
		giveOutputs(t, s, "run", map[string]string{"TOKEN": "hunter2"})
		exec(t, db, `UPDATE run_secret_outputs SET run_id = 'stolen'`)
		_, err := s.OutputsOf(ctx, "stolen", []string{"job"})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("an output that was moved to another run: %v", err)
		}
		if public, private, err := New(db, nil, s.clock).NewRunKey(); public != "" || private != "" || err != nil {
			t.Errorf("without a master key: %q, %q, %v", public, private, err)
		}
	})
}

func TestRevealingOutputsIsAuditedAndTellsWhatCannotBeRead(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, ctx := newStore(t, db), t.Context()
		giveOutputs(t, s, "run", map[string]string{"TOKEN": "hunter2", "OTHER": "v", "LOST": "v"})
		exec(t, db, `UPDATE run_secret_outputs SET encrypted_value = 'AAAA' WHERE output_key = 'LOST'`)
		by := Actor{UserID: "tok", Role: "admin", RoutingKey: "k"}
		all, err := s.Reveal(ctx, by, "run", "")
		must(t, err)
		values := map[string]string{}
		for _, o := range all {
			values[o.Key] = o.Value
			if (o.Err != nil) != (o.Key == "LOST") {
				t.Errorf("output %s: %v", o.Key, o.Err)
			}
		}
		if diff := cmp.Diff(map[string]string{"TOKEN": "hunter2", "OTHER": "v", "LOST": ""}, values); diff != "" {
			t.Error(diff)
		}
		one, err := s.Reveal(ctx, by, "run", "TOKEN")
		if err != nil || len(one) != 1 || one[0].Value != "hunter2" {
			t.Errorf("of one name: %+v, %v", one, err)
		}
		entries, err := s.Audit(ctx, AuditFilter{Action: "secret-outputs.reveal"})
		must(t, err)
		if len(entries) != 2 || entries[0].Context != "run:run" || entries[0].UserID != "tok" || !slices.Equal(entries[1].Keys, []string{"LOST", "OTHER", "TOKEN"}) {
			t.Errorf("audited %+v", entries)
		}
		exec(t, db, `DROP TABLE secret_audit_log`)
		if all, err := s.Reveal(ctx, by, "run", ""); err == nil {
			t.Errorf("without an audit log: %+v", all)
		}
		if _, err := New(db, nil, s.clock).Reveal(ctx, by, "run", ""); !errors.Is(err, ErrNotConfigured) {
			t.Errorf("without a master key: %v", err)
		}
	})
}

func TestTheEndOfARunTakesValuesAndLeavesNames(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		giveOutputs(t, s, "run", map[string]string{"TOKEN": "v"})
		forgetRun(t, s, "run")
		names := func() []string {
			names, err := s.texts(t.Context(), `SELECT job_id || '/' || output_key FROM run_secret_output_names`)
			must(t, err)
			return names
		}
		if got := append(outputNames(t, s, "run", ""), names()...); !slices.Equal(got, []string{"job/TOKEN"}) {
			t.Errorf("after the end: %q", got)
		}
		must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return Names{}.ForgetRunTx(ctx, tx, "run") }))
		if got := names(); len(got) != 0 {
			t.Errorf("of a forgotten run: %q", got)
		}
	})
}
