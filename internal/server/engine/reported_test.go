package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// wordsOf is the life of a job as its agent tells it.
func wordsOf(jobID string) []wire.Message {
	step := func(id string, index int, state ci.StepStatus) wire.StepStatus {
		return wire.StepStatus{MessageID: id, JobID: jobID, StepIndex: index, StepName: fmt.Sprint("s", index), State: state, Timestamp: 1}
	}
	return []wire.Message{
		wire.JobStatus{MessageID: "1", JobID: jobID, State: ci.JobRunning},
		step("2", 0, ci.StepRunning), step("3", 0, ci.StepFailed), step("4", 0, ci.StepRunning), step("5", 0, ci.StepSuccess), step("6", 1, ci.StepRunning),
		wire.JobStatus{MessageID: "7", JobID: jobID, State: ci.JobSuccess, Data: json.RawMessage(
			`{"outputs":{"v":1},"stepResults":[{"name":"s0","status":"success","durationMs":3},{"name":"s1","status":"success","durationMs":4}]}`)},
		step("8", 1, ci.StepFailed), // too late
	}
}

// given is job a of a run r, which agent-1 has.
func (b *bench) given() engine.Owned {
	b.t.Helper()
	b.register("r", job{name: "a"})
	if !b.claim("r/a", "agent-1") {
		b.t.Fatal("not claimed")
	}
	return engine.Owned{RunID: "r", JobID: "r/a", JobName: "a"}
}

func TestWordsMeanTheSameTogetherAsOneByOne(t *testing.T) {
	each(t, func(b *bench) {
		alone := [][]wire.Message{}
		for i := range wordsOf("") {
			alone = append(alone, wordsOf("one/a")[i:i+1])
		}
		tests := map[string][][]wire.Message{
			"one":   alone,
			"all":   {wordsOf("all/a")},
			"ends":  {wordsOf("ends/a")[:2], wordsOf("ends/a")[2:6], wordsOf("ends/a")[6:]},
			"steps": {wordsOf("steps/a")[:1], wordsOf("steps/a")[1:5], wordsOf("steps/a")[5:7], wordsOf("steps/a")[7:]},
		}
		var want []string
		for _, run := range []string{"one", "all", "ends", "steps"} {
			b.register(run, job{name: "a"}, job{name: "b", needs: []string{"a"}})
			if !b.claim(run+"/a", "agent-1") {
				b.t.Fatal("not claimed")
			}
			for _, words := range tests[run] {
				b.must(b.e.Reported(b.t.Context(), "agent-1", engine.Owned{RunID: run, JobID: run + "/a", JobName: "a"}, words...))
			}
			got := slices.Concat(
				b.list("SELECT job_name || ' ' || status || ' ' || coalesce(outputs, '') FROM execution_jobs WHERE run_id = $1 ORDER BY position", run),
				b.list("SELECT step_name || ' ' || status || ' ' || coalesce(duration_ms, -1) FROM execution_steps WHERE run_id = $1 ORDER BY step_index", run),
				b.list("SELECT status FROM dispatch_queue WHERE run_id = $1 ORDER BY id", run),
				b.list("SELECT status FROM execution_runs WHERE run_id = $1", run))
			if run == "one" {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" || got[0] != `a success {"v":1}` {
				b.t.Errorf("%s (-one by one +together):\n%s", run, diff)
			}
		}
	})
}

// Whatever is said of steps, and however much of it at once, is stored as if it had been said word by word.
func TestWordsAboutAStepAddUp(t *testing.T) {
	each(t, func(b *bench) {
		b.register("one", job{name: "a"})
		b.register("all", job{name: "a"})
		for _, of := range []string{"one/a", "all/a"} {
			if !b.claim(of, "agent-"+map[string]string{"one/a": "1", "all/a": "2"}[of]) {
				b.t.Fatal("not claimed")
			}
		}
		rapid.Check(b.t, func(r *rapid.T) {
			said := rapid.SliceOfN(rapid.Custom(randomStep), 1, 6).Draw(r, "said")
			var together []wire.Message
			for _, m := range said {
				m.JobID = "one/a"
				b.must(b.e.Reported(b.t.Context(), "agent-1", engine.Owned{RunID: "one", JobID: "one/a", JobName: "a"}, m))
				m.JobID = "all/a"
				together = append(together, m)
			}
			b.must(b.e.Reported(b.t.Context(), "agent-2", engine.Owned{RunID: "all", JobID: "all/a", JobName: "a"}, together...))
			if diff := cmp.Diff(b.list(stepRows, "one"), b.list(stepRows, "all")); diff != "" {
				r.Fatalf("(-one by one +together):\n%s", diff)
			}
		})
	})
}

// stepRows is all that is stored of the steps of a run.
const stepRows = `SELECT step_index || ' ' || step_name || ' ' || status || ' ' || step_type || ' ' || coalesce(started_at, -1) || ' ' || coalesce(completed_at, -1)
|| ' ' || coalesce(duration_ms, -1) || ' ' || coalesce(exit_code, -1) || ' ' || coalesce(error_message, '-') || ' ' || log_bytes || ' ' || coalesce(secrets_accessed, '-')
|| ' ' || coalesce(check_outcome, '-') || ' ' || coalesce(drift_summary, '-') || ' ' || coalesce(drift, '-') || ' ' || coalesce(concurrency_kind, '-') || ' ' || coalesce(group_id, '-')
FROM execution_steps WHERE run_id = $1 ORDER BY step_index`

// The end of a job tells of steps once more, and closes those that go on, however much was told before and is told with it.
func TestAnEndAndWordsAboutStepsAddUp(t *testing.T) {
	each(t, func(b *bench) {
		n := 0
		rapid.Check(b.t, func(r *rapid.T) {
			n++
			said := rapid.SliceOfN(rapid.Custom(randomStep), 0, 4).Draw(r, "said")
			results := rapid.SliceOfN(rapid.Custom(randomResult), 0, 3).Draw(r, "results")
			first := rapid.IntRange(0, len(said)).Draw(r, "said first")
			end := rapid.SampledFrom([]ci.JobStatus{ci.JobSuccess, ci.JobFailed, ci.JobCancelled}).Draw(r, "end")
			var want []string
			for i, cuts := range [][]int{allCuts(len(said)), {0}, {0, first}} {
				of := engine.Owned{RunID: fmt.Sprint("r", n, "-", i), JobName: "a"}
				of.JobID = of.RunID + "/a"
				b.register(of.RunID, job{name: "a"})
				if !b.claim(of.JobID, "agent-1") {
					b.t.Fatal("not claimed")
				}
				var words []wire.Message
				for _, m := range said {
					m.JobID = of.JobID
					words = append(words, m)
				}
				words = append(words, wire.JobStatus{MessageID: "end", JobID: of.JobID, State: end,
					Data: json.RawMessage(`{"stepResults":[` + strings.Join(results, ",") + `]}`)})
				for k, from := range cuts {
					to := len(words)
					if k+1 < len(cuts) {
						to = cuts[k+1]
					}
					b.must(b.e.Reported(b.t.Context(), "agent-1", of, words[from:to]...))
				}
				got := append(b.list(stepRows, of.RunID), b.text("SELECT status || ' ' || log_bytes FROM execution_runs WHERE run_id = $1", of.RunID))
				if want == nil {
					want = got
				}
				if diff := cmp.Diff(want, got); diff != "" {
					r.Fatalf("cut at %v (-one by one +together):\n%s", cuts, diff)
				}
			}
		})
	})
}

// allCuts cuts n words and an end into one each.
func allCuts(n int) []int {
	cuts := make([]int, n+1)
	for i := range cuts {
		cuts[i] = i
	}
	return cuts
}

func randomResult(r *rapid.T) string {
	return fmt.Sprintf(`{"name":%q,"status":%q,"durationMs":%d%s}`, rapid.SampledFrom([]string{"s", "u"}).Draw(r, "name"),
		rapid.SampledFrom([]ci.StepStatus{ci.StepSuccess, ci.StepFailed, ci.StepSkipped, ci.StepRunning}).Draw(r, "status"),
		rapid.IntRange(0, 5).Draw(r, "ms"), rapid.SampledFrom([]string{"", `,"error":"why"`}).Draw(r, "error"))
}

func randomStep(r *rapid.T) wire.StepStatus {
	text := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(r, what) }
	m := wire.StepStatus{MessageID: "m", StepIndex: rapid.IntRange(0, 1).Draw(r, "index"), StepName: text("name", "s", "t"), StepType: text("type", "", "hook"),
		State:     rapid.SampledFrom([]ci.StepStatus{ci.StepRunning, ci.StepSuccess, ci.StepFailed, ci.StepPending}).Draw(r, "state"),
		Timestamp: rapid.Int64Range(1, 9).Draw(r, "at"), ConcurrencyKind: text("kind", "", "parallel"), GroupID: text("group", "", "g", "h"),
		Data: json.RawMessage(text("data", `{}`, `{"durationMs":3,"exitCode":1,"error":"e"}`, `{"checkOutcome":"dry-run","driftSummary":"d","drift":[1]}`, `{"checkOutcome":"ok"}`))}
	if rapid.Bool().Draw(r, "tells of secrets") {
		m.SecretsAccessed = rapid.SliceOfN(rapid.SampledFrom([]string{"A", "B"}), 0, 2).Draw(r, "secrets")
	}
	if rapid.Bool().Draw(r, "tells of its log") {
		size := rapid.Int64Range(0, 9).Draw(r, "bytes")
		m.LogBytesStreamed = &size
	}
	return m
}

func TestAnEndThatIsNotTheAgentsToSayEndsNothing(t *testing.T) {
	each(t, func(b *bench) {
		for i, state := range []ci.JobStatus{ci.JobSkipped, ci.JobTimedOutStale, ci.JobUnroutable} {
			run := fmt.Sprint("r", i)
			b.register(run, job{name: "a"})
			agent := fmt.Sprint("agent-", i%2+1)
			if !b.claim(run+"/a", agent) {
				b.t.Fatal("not claimed")
			}
			b.must(b.e.Reported(b.t.Context(), agent, engine.Owned{RunID: run, JobID: run + "/a", JobName: "a"},
				wire.JobStatus{MessageID: "1", JobID: run + "/a", State: ci.JobRunning, Timestamp: 1},
				wire.JobStatus{MessageID: "2", JobID: run + "/a", State: state, Timestamp: 2}))
			if got := b.list("SELECT status FROM execution_jobs WHERE run_id = $1", run); got[0] != "running" {
				b.t.Errorf("%s: %s", state, got[0])
			}
			b.report(agent, run+"/a", ci.JobSuccess, "")
		}
	})
}

func TestWhatIsStoredAlongSharesItsFate(t *testing.T) {
	each(t, func(b *bench) {
		of := b.given()
		mark := func(ctx context.Context, tx *store.Tx) error {
			return tx.Do(ctx, "INSERT INTO selectors (id, canonical) VALUES ('mark', 'x')")
		}
		marks := func() []string { return b.list("SELECT canonical FROM selectors WHERE id = 'mark'") }
		if err := b.e.ReportedAlong(b.t.Context(), "agent-1", of, mark, wire.Heartbeat{}); err == nil || len(marks()) > 0 {
			b.t.Errorf("words that are not taken: %v, %q", err, marks())
		}
		refused := errors.New("refused")
		err := b.e.ReportedAlong(b.t.Context(), "agent-1", of, func(context.Context, *store.Tx) error { return refused }, wordsOf("r/a")...)
		if !errors.Is(err, refused) {
			b.t.Error(err)
		}
		b.wantJobs(map[string]string{"r/a": "pending"})
		b.must(b.e.ReportedAlong(b.t.Context(), "agent-1", of, mark, wordsOf("r/a")...))
		b.wantJobs(map[string]string{"r/a": "success"})
		if len(marks()) != 1 {
			b.t.Error("what was to be stored along is not there")
		}
	})
}

func TestAnAnswerAmongWords(t *testing.T) {
	each(t, func(b *bench) {
		answer := func(job string) wire.JobAck { return wire.JobAck{MessageID: "0", RunID: "r", JobID: job, Timestamp: 1} }
		step := wire.StepStatus{MessageID: "2", StepName: "s", State: ci.StepRunning, Timestamp: 1}
		b.register("r", job{name: "a"}, job{name: "b"}, job{name: "c"})
		for _, tt := range []struct {
			job   string
			words []wire.Message
			want  string
		}{
			{"r/a", append([]wire.Message{answer("r/a")}, wordsOf("r/a")...), "completed"},
			{"r/b", []wire.Message{answer("r/b"), step}, "dispatched answered"},
		} {
			if !b.claim(tt.job, "agent-1") {
				b.t.Fatal("not claimed")
			}
			of := engine.Owned{RunID: "r", JobID: tt.job, JobName: tt.job[2:]}
			b.must(b.e.Reported(b.t.Context(), "agent-1", of, tt.words...))
			got := b.list("SELECT status || CASE WHEN status = 'dispatched' AND ack_deadline IS NULL THEN ' answered' ELSE '' END FROM dispatch_queue WHERE id = $1", tt.job)
			if diff := cmp.Diff([]string{tt.want}, got); diff != "" {
				b.t.Errorf("%s: %s", tt.job, diff)
			}
			if err := b.e.Reported(b.t.Context(), "agent-2", of, answer(tt.job), step); !errors.Is(err, engine.ErrNotOwner) {
				b.t.Errorf("of another agent: %v", err)
			}
		}
	})
}

// What an agent could not say for minutes arrives at once; how long its job ran is still told.
func TestHowLongAJobRanIsKnownWhereItsLifeIsToldAtOnce(t *testing.T) {
	each(t, func(b *bench) {
		of := b.given()
		b.now.Add(60_000)
		b.must(b.e.Reported(b.t.Context(), "agent-1", of,
			wire.JobStatus{MessageID: "1", JobID: "r/a", State: ci.JobRunning, Timestamp: 5000},
			wire.JobStatus{MessageID: "2", JobID: "r/a", State: ci.JobSuccess, Timestamp: 25_000}))
		got := slices.Concat(b.list("SELECT coalesce(duration_ms, -1) || '' FROM execution_jobs"), b.list("SELECT coalesce(duration_ms, -1) || '' FROM execution_runs"))
		if diff := cmp.Diff([]string{"20000", "20000"}, got); diff != "" {
			b.t.Error(diff)
		}
	})
}

func TestOfWordsThatCannotAllBeTakenNoneIs(t *testing.T) {
	each(t, func(b *bench) {
		of := b.given()
		words := append(wordsOf("r/a"), wire.Heartbeat{})
		if err := b.e.Reported(b.t.Context(), "agent-1", of, words...); err == nil {
			b.t.Error("a heartbeat is taken for a word about a job")
		}
		b.wantJobs(map[string]string{"r/a": "pending"})
		if steps := b.list("SELECT step_name FROM execution_steps"); len(steps) > 0 {
			b.t.Errorf("steps %q", steps)
		}
		of.JobID = "made up"
		if err := b.e.Reported(b.t.Context(), "agent-1", of, wordsOf("made up")...); !errors.Is(err, engine.ErrNotOwner) {
			b.t.Errorf("error = %v", err)
		}
	})
}
