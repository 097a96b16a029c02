package server_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	decide "kici/internal/decide/contexts"
	"kici/internal/kit/seal"
	"kici/internal/server/contexts"
	"kici/internal/server/engine"
	"kici/internal/server/secrets"
	"kici/internal/server/servertest"
)

// contextStore is the servers' store of contexts, as an administrator's changes reach it.
func contextStore(t *testing.T, h *servertest.Home) *contexts.Store {
	t.Helper()
	keys, err := seal.NewKeyring(h.Settings.MasterKey, "")
	if err != nil {
		t.Fatal(err)
	}
	return contexts.New(h.DB, time.Now, secrets.New(h.DB, keys, time.Now), engine.PendingHolds)
}

// putContext makes a context with a binding to a scope and variables; "" binds nothing.
func putContext(t *testing.T, h *servertest.Home, name, scope string, variables map[string]string, change func(*decide.Context)) {
	t.Helper()
	s := contextStore(t, h)
	_, _, err := s.Put(t.Context(), "test", servertest.Org, name, func(c *decide.Context, _ bool) error {
		if change != nil {
			change(c)
		}
		return nil
	}, variables)
	if err != nil {
		t.Fatal(err)
	}
	if scope == "" {
		return
	}
	if _, err := s.Bind(t.Context(), servertest.Org, name, decide.Binding{ScopePattern: scope}); err != nil {
		t.Fatal(err)
	}
}

// makeContexts makes the contexts of the server with which recordings were made. It also ran jobs whose context does not
// exist, which ours refuses, so that one exists here.
func makeContexts(t *testing.T, h *servertest.Home) {
	t.Helper()
	putContext(t, h, "base", "shared", map[string]string{"LEVEL": "shared-level"}, nil)
	putContext(t, h, "production", "prod/**", map[string]string{"LEVEL": "prod-level"}, nil)
	putContext(t, h, "not-there", "", nil, nil)
	setSecret(t, h, "shared", "SHARED", "dummy-from-shared")
	setSecret(t, h, "prod/app", "SHARED", "dummy-from-prod")
	setSecret(t, h, "prod/app", "API_KEY", "dummy-api-key-42")
	setSecret(t, h, "prod/app", "CERT", "-----BEGIN DUMMY-----\nline two\n-----END DUMMY-----")
}

// compareGrant compares the secrets of a dispatch with the recorded ones.
func compareGrant(t *testing.T, pair dispatchPair) {
	t.Helper()
	type grant struct {
		Secrets    map[string]string
		Namespaced ci.NamespacedSecrets
	}
	a, b := pair.recorded, pair.got
	if len(b.Secrets) == 0 {
		b.Secrets = nil // not written
	}
	if diff := cmp.Diff(grant{a.Secrets, a.NamespacedSecrets}, grant{b.Secrets, b.NamespacedSecrets}); diff != "" {
		t.Errorf("secrets of %s (- recorded, + ours):\n%s", jobNames(t, a), diff)
	}
}

// inContext is a lock file of one job that has contexts.
func inContext(names ...string) []byte {
	entries := make([]string, len(names))
	for i, name := range names {
		entries[i] = `{"value":"` + name + `","dynamic":false}`
	}
	return bytes.Replace(servertest.Lock("build"), []byte(`"needs":[]`),
		[]byte(`"needs":[],"environments":[`+strings.Join(entries, ",")+`]`), 1)
}

func TestAJobOfNoContextThereIsFailsBeforeAnAgentSeesIt(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		setSecret(t, h, "nowhere", "TOKEN", declaredValue) // a scope of that name makes no context
		h.Start(t)
		h.Push(t, app, "main", h.Commit(t, app, inContext("nowhere")))
		h.AwaitRuns(t, 1)
		var status, failure string
		err := h.DB.Read().QueryRowContext(t.Context(), "SELECT status, init_failure FROM execution_jobs").Scan(&status, &failure)
		if err != nil || status != "failed" || !strings.Contains(failure, "environment_rules") || !strings.Contains(failure, "nowhere") {
			t.Errorf("the job is %s because of %s, %v", status, failure, err)
		}
	})
}

// Agents lay the contexts over each other as they stand on the wire.
func TestTheLastContextOfAJobWinsOnTheWire(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		for _, name := range []string{"staging", "prod", "base"} {
			setSecret(t, h, name, "TOKEN", "of "+name)
			putContext(t, h, name, name, nil, nil)
		}
		h.Start(t)
		p := h.Dial(t)
		p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux"}, MaxConcurrency: 1})
		h.Push(t, app, "main", h.Commit(t, app, inContext("staging", "prod", "base")))
		d := nextDispatch(t, p, "build")
		var order []string
		for _, c := range d.NamespacedSecrets {
			order = append(order, c.Context)
		}
		if diff := cmp.Diff([]string{"staging", "prod", "base"}, order); diff != "" {
			t.Errorf("contexts on the wire (- want, + got):\n%s", diff)
		}
		if d.Secrets["TOKEN"] != "of base" {
			t.Errorf("the flat secret is %q", d.Secrets["TOKEN"])
		}
	})
}

func TestAJobGetsItsContextsBesideTheFlatScopeAndItsUpstreams(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		setSecret(t, h, secrets.DefaultScope, "TOKEN", "flat")
		setSecret(t, h, secrets.DefaultScope, "FLAT", "flat")
		setSecret(t, h, "prod", "TOKEN", "of the context")
		putContext(t, h, "prod", "prod", map[string]string{"LEVEL": "9"}, nil)
		h.Start(t)
		p := h.Dial(t)
		p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux"}, MaxConcurrency: 1})
		h.Push(t, app, "main", h.Commit(t, app, inContext("prod")))
		d := nextDispatch(t, p, "build")
		want := map[string]string{"TOKEN": "of the context", "FLAT": "flat"}
		if diff := cmp.Diff(want, d.Secrets); diff != "" {
			t.Errorf("secrets (- want, + got):\n%s", diff)
		}
		if diff := cmp.Diff(ci.NamespacedSecrets{{Context: "prod", Secrets: map[string]string{"TOKEN": "of the context"}}}, d.NamespacedSecrets); diff != "" {
			t.Errorf("secrets by context (- want, + got):\n%s", diff)
		}
		if variables := needed(t, d.JobConfig)["environmentVars"]; !cmp.Equal(variables, any(map[string]any{"LEVEL": "9"})) {
			t.Errorf("variables %v", variables)
		}
		if err := contextStore(t, h).Delete(t.Context(), servertest.Org, "prod"); err != nil {
			t.Fatal(err)
		}
		p.Send(wire.JobReject{MessageID: "reject", RunID: d.RunID, JobID: d.JobID, Reason: wire.RejectBusy, Timestamp: 1})
		p.Send(wire.AgentStatus{MessageID: "idle", AgentID: "a"})
		h.AwaitRuns(t, 1) // given out again, it finds its context gone
		var failure string
		err := h.DB.Read().QueryRowContext(t.Context(), "SELECT init_failure FROM execution_jobs").Scan(&failure)
		if err != nil || !strings.Contains(failure, "secret_resolution") || !strings.Contains(failure, "prod") {
			t.Errorf("the job ended because of %s, %v", failure, err)
		}
	})
}
