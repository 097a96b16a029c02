package plan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
	"kici/internal/decide/contexts"
	"kici/internal/kit/script"
	"kici/internal/vectors"
)

func TestVectorsInlineFields(t *testing.T) {
	for _, c := range vectors.Load(t, "inline-eval.json") {
		var in struct {
			Fn      string
			LockJob json.RawMessage
			Event   json.RawMessage
		}
		decode(t, c.Input, &in)
		if in.Fn != "fields" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			e := evaluator{event: func() (json.RawMessage, error) { return in.Event, nil }}
			f, err := e.fields(lockJob(t, in.LockJob))
			var want struct {
				Value *struct {
					InlineEnvironmentNames []*string
					InlineEnv              *lockfile.Pairs
					InlineConcurrencyGroup *string
				}
				Error struct{ Kind, MessagePrefix string }
			}
			decode(t, c.Expected, &want)
			if want.Value == nil {
				var failed *script.Error
				if !errors.As(err, &failed) || string(failed.Kind) != want.Error.Kind || !strings.HasPrefix(err.Error(), want.Error.MessagePrefix) {
					t.Errorf("error %v, want %+v", err, want.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w := want.Value
			if diff := cmp.Diff(w.InlineEnvironmentNames, f.contexts) + cmp.Diff(w.InlineEnv, f.env) + cmp.Diff(w.InlineConcurrencyGroup, f.group); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVectorsEnvMerge(t *testing.T) {
	for _, c := range vectors.LoadSuite(t, "env-merge.json") {
		t.Run(c.ID, func(t *testing.T) {
			switch c.Fn {
			case "jobContextNames":
				needsAgentVector(t, c)
			case "inlineFields":
				inlineFieldsVector(t, c)
			}
		})
	}
}

// needsAgentVector asks the planner alone; package contexts compares the names.
func needsAgentVector(t *testing.T, c vectors.SuiteCase) {
	var in struct {
		Elements    json.RawMessage
		InlineNames []*string
	}
	decode(t, c.Input, &in)
	j := lockJob(t, json.RawMessage(`{"name":"j","contexts":`+string(in.Elements)+`}`))
	var want struct{ NeedsInit bool }
	decode(t, c.Expected, &want)
	if open := needsAgent(j, contexts.NamesOf(j.Environments, in.InlineNames)); open.any() != want.NeedsInit {
		t.Errorf("needs an agent for %q, want %v", open.words(), want.NeedsInit)
	}
}

func inlineFieldsVector(t *testing.T, c vectors.SuiteCase) {
	var in struct{ Job, Event json.RawMessage }
	decode(t, c.Input, &in)
	e := evaluator{event: func() (json.RawMessage, error) { return in.Event, nil }}
	f, err := e.fields(lockJob(t, in.Job))
	if c.Error != "" {
		if err == nil || !strings.HasPrefix(err.Error(), c.Error) {
			t.Errorf("error %v, want %s", err, c.Error)
		}
		return
	}
	var want struct {
		ContextNames     []*string
		Env              *lockfile.Pairs
		ConcurrencyGroup *string
	}
	decode(t, c.Expected, &want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.ContextNames, f.contexts) + cmp.Diff(want.Env, f.env) + cmp.Diff(want.ConcurrencyGroup, f.group); diff != "" {
		t.Error(diff)
	}
}
