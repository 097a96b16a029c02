//go:build unix

package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/testenv"
)

const samples = "../../testdata/samples"

// recording reads the dispatches of a recorded conversation in their order, and the end that each job had.
func recording(t *testing.T, name string) (dispatches []wire.JobDispatch, ends map[string]wire.JobStatus) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(samples, "wire", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	ends = map[string]wire.JobStatus{}
	for line := range strings.Lines(string(raw)) {
		var l struct {
			Dir string
			Msg json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		var m wire.Message
		switch l.Dir {
		case "o2a":
			m, err = wire.DecodeFromServer(l.Msg)
		case "a2o":
			m, err = wire.DecodeFromAgent(l.Msg)
		}
		if err != nil {
			t.Fatalf("%s: %v", l.Msg, err)
		}
		switch m := m.(type) {
		case wire.JobDispatch:
			dispatches = append(dispatches, m)
		case wire.JobStatus:
			if m.State.Terminal() {
				ends[m.JobID] = m
			}
		}
	}
	return dispatches, ends
}

// TestRecordedJobsEndAsTheyDid gives the agent what another server gave another agent, each job with the content hash of
// its source, and compares what it makes of it.
func TestRecordedJobsEndAsTheyDid(t *testing.T) {
	testenv.Need(t, "node") // one of the workflows imports a module of it
	for recorded, workflow := range map[string]string{"init-jobs-with-contexts": "init-runner", "generator-groups": "generator", "needs-matrix-outputs": "capture",
		"two-steps-success": "capture", "failing-step": "capture", "parallel-groups": "parallel-groups", "hooks": "hooks"} {
		t.Run(recorded, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(samples, "workflows", workflow+".ts"))
			if err != nil {
				t.Fatal(err)
			}
			url, sha := repository(t, map[string]string{".kici/workflows/" + workflow + ".ts": string(source)})
			s := newFakeServer(t)
			startAgent(t, s.url, "", func(c *Config) { c.RunnerCommand = []string{os.Args[0], "__runner"} })
			p := s.accept()
			p.register()
			dispatches, ends := recording(t, recorded)
			if len(dispatches) == 0 || len(ends) != len(dispatches) {
				t.Fatalf("the recording has %d dispatches and %d ends", len(dispatches), len(ends))
			}
			for _, d := range dispatches {
				d.RepoURL, d.SHA, d.Ref, d.SourceTarURL = url, sha, "main", ""
				if workflow == "capture" {
					d.JobConfig = withoutHash(t, d.JobConfig) // its source was another then
				}
				p.send(d)
				end, _ := terminal(p)
				if want := ends[d.JobID]; end.State != want.State || end.JobID != d.JobID {
					t.Errorf("%s ended as %s %s, recorded as %s", d.JobConfig, end.State, end.Data, want.State)
				} else if diff := cmp.Diff(essence(t, want.Data), essence(t, end.Data)); diff != "" {
					t.Errorf("%s (-recorded +ours):\n%s", d.JobConfig, diff)
				}
			}
		})
	}
}

func withoutHash(t *testing.T, config json.RawMessage) json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(config, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "contentHash")
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// essence leaves out what differs from machine to machine, the words of errors, and what ours tells beyond the recorded:
// where the steps of a generated job stand, and how an agent is picked for it.
func essence(t *testing.T, data json.RawMessage) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return pruned(v)
}

func pruned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"durationMs", "HOST_LENGTH", "sourceLocation", "runsOnPick", "error"} {
			delete(v, name)
		}
		for name, member := range v {
			v[name] = pruned(member)
		}
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
	}
	return v
}
