package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/cache"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// fakeCache notes what it is asked in the engine's list of calls, and holds up a question about a held job.
type fakeCache struct {
	engine *fakeEngine
	fail   error
	held   map[string]chan struct{} // by job id
}

func (f *fakeCache) note(job engine.Owned, call string) error {
	if held := f.held[job.JobID]; held != nil {
		<-held
	}
	return errors.Join(f.engine.note(call+" "+job.RunID), f.fail)
}

func (f *fakeCache) BuildUpload(_ context.Context, job engine.Owned, m wire.CacheUploadRequest) (wire.CacheUploadResponse, error) {
	return wire.CacheUploadResponse{UploadURL: "https://store/" + m.ContentHash}, f.note(job, "upload")
}

func (f *fakeCache) BuildUploaded(_ context.Context, job engine.Owned, m wire.CacheUploadComplete) error {
	return f.note(job, "uploaded "+m.ContentHash)
}

func (f *fakeCache) Restore(_ context.Context, job engine.Owned, m wire.UserCacheRestoreRequest) (wire.UserCacheRestoreResponse, error) {
	return wire.UserCacheRestoreResponse{Hit: true, MatchedKey: m.Key, DownloadURL: "https://store/" + m.Key, TarHash: "07"}, f.note(job, "restore")
}

func (f *fakeCache) Save(_ context.Context, job engine.Owned, m wire.UserCacheSaveRequest) (wire.UserCacheSaveResponse, error) {
	return wire.UserCacheSaveResponse{UploadURL: "https://store/" + m.Key}, f.note(job, "save")
}

func (f *fakeCache) Saved(_ context.Context, job engine.Owned, m wire.UserCacheSaveComplete) error {
	return f.note(job, "saved "+m.Key)
}

func (f *fakeCache) BeginArtifact(_ context.Context, job engine.Owned, m wire.ArtifactUploadRequest) (wire.ArtifactUploadResponse, error) {
	return wire.ArtifactUploadResponse{UploadID: "u", UploadURL: "https://store/" + m.Name, MaxBytes: 7}, f.note(job, "begin "+m.Name)
}

func (f *fakeCache) CommitArtifact(_ context.Context, job engine.Owned, m wire.ArtifactCommitRequest) error {
	return f.note(job, "commit "+m.UploadID)
}

func withCache(f *fakeCache) option {
	return func(d *Deps) {
		f.engine = d.Engine.(*fakeEngine)
		d.Cache = f
	}
}

func TestTheCacheIsAskedForTheJobOfTheFrame(t *testing.T) {
	build := wire.CacheUploadRequest{MessageID: "m", JobID: "j", CacheType: wire.CacheSource, ContentHash: "c0", Platform: "linux", Arch: "x64"}
	restore := wire.UserCacheRestoreRequest{MessageID: "m", JobID: "j", Key: "k"}
	save := wire.UserCacheSaveRequest{MessageID: "m", JobID: "j", Key: "k"}
	tests := []struct {
		name         string
		ask          wire.Message
		answer, none wire.Message
	}{
		{"build", build, wire.CacheUploadResponse{RequestID: "m", UploadURL: "https://store/c0"}, wire.CacheUploadResponse{RequestID: "m"}},
		{"restore", restore, wire.UserCacheRestoreResponse{RequestID: "m", Hit: true, MatchedKey: "k", DownloadURL: "https://store/k", TarHash: "07"},
			wire.UserCacheRestoreResponse{RequestID: "m"}},
		{"save", save, wire.UserCacheSaveResponse{RequestID: "m", UploadURL: "https://store/k"}, wire.UserCacheSaveResponse{RequestID: "m", Skip: true}},
	}
	for _, tt := range tests {
		for _, fail := range []error{nil, errors.New("the store is down")} {
			t.Run(fmt.Sprint(tt.name, " ", fail), func(t *testing.T) {
				b := newBench(t, withCache(&fakeCache{fail: fail}))
				b.engine.give("a", "j")
				p, _ := b.join(t, agent("a"))
				p.send(tt.ask)
				got, err := p.read()
				if err != nil {
					t.Fatal(err)
				}
				want := tt.answer
				if fail != nil {
					want = tt.none
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

// What was put somewhere is told until the server has noted it. An acknowledgement says that it has, or never will.
func TestWhatIsStoredIsAcknowledged(t *testing.T) {
	complete := map[string]func(id, job string) wire.Message{
		"a cache": func(id, job string) wire.Message {
			return wire.UserCacheSaveComplete{MessageID: id, JobID: job, Key: "k", TarHash: "07", SizeBytes: 1}
		},
		"a source": func(id, job string) wire.Message {
			return wire.CacheUploadComplete{MessageID: id, JobID: job, CacheType: wire.CacheSource, ContentHash: "c0", Platform: "linux", Arch: "x64"}
		},
		"an attestation": func(id, job string) wire.Message {
			return wire.ProvenanceUploadComplete{MessageID: id, JobID: job, SubjectDigest: "07"}
		},
	}
	for name, message := range complete {
		for _, tt := range []struct {
			fail error
			acks []string
		}{
			{nil, []string{"theirs", "mine"}},
			{&cache.Refusal{}, []string{"theirs", "mine"}},
			{errors.New("odd"), []string{"theirs", "mine"}},
			{&pgconn.PgError{Code: "57P01"}, []string{"theirs"}},
			{context.DeadlineExceeded, []string{"theirs"}},
		} {
			t.Run(fmt.Sprint(name, " ", tt.fail), func(t *testing.T) {
				b := newBench(t, withCache(&fakeCache{fail: tt.fail}), withProvenance(&fakeProvenance{fail: tt.fail}))
				b.engine.give("a", "mine")
				p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
				p.send(message("theirs", "theirs"))
				p.send(message("mine", "mine"))
				p.send(status("mine", "last", ci.JobSuccess))
				var acks []string
				for id := ""; id != "last"; {
					id = expect[wire.Ack](p).MessageID
					acks = append(acks, id)
				}
				if tt.acks = append(tt.acks, "last"); !slices.Equal(acks, tt.acks) {
					t.Errorf("acknowledged %q, want %q", acks, tt.acks)
				}
			})
		}
	}
}

func TestASlowCacheHoldsUpItsOwnJobOnly(t *testing.T) {
	slow := make(chan struct{})
	b := newBench(t, withCache(&fakeCache{held: map[string]chan struct{}{"slow": slow}}))
	b.engine.give("a", "slow", "quick")
	p, _ := b.join(t, agent("a"))
	p.send(wire.UserCacheRestoreRequest{MessageID: "1", JobID: "slow", Key: "k"})
	p.send(wire.UserCacheRestoreRequest{MessageID: "2", JobID: "quick", Key: "k"})
	if got := expect[wire.UserCacheRestoreResponse](p); got.RequestID != "2" {
		t.Errorf("answer to %s, want the quick job's", got.RequestID)
	}
	p.settle() // the reader goes on as well
	close(slow)
	if got := expect[wire.UserCacheRestoreResponse](p); got.RequestID != "1" {
		t.Errorf("answer to %s, want the slow job's", got.RequestID)
	}
}

func TestWhatWasUploadedIsKeptBeforeTheJobEnds(t *testing.T) {
	slow := make(chan struct{})
	b := newBench(t, withCache(&fakeCache{held: map[string]chan struct{}{"j": slow}}))
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(wire.UserCacheSaveRequest{MessageID: "1", JobID: "j", Key: "k"})
	p.send(wire.UserCacheSaveComplete{MessageID: "2", JobID: "j", Key: "k", TarHash: "07", SizeBytes: 1})
	p.send(wire.CacheUploadComplete{MessageID: "3", JobID: "j", CacheType: wire.CacheSource, ContentHash: "c0", Platform: "linux", Arch: "x64"})
	p.send(status("j", "4", ci.JobSuccess))
	close(slow)
	b.engine.await(t, "job j success")
	want := []string{"connected a", "save run-of-j", "saved k run-of-j", "uploaded c0 run-of-j", "job j success"}
	if d := cmp.Diff(want, b.engine.seen()); d != "" {
		t.Error(d)
	}
}

// fakeConcurrency gives one answer, and notes whom it took for patient.
type fakeConcurrency struct {
	mu      sync.Mutex
	answer  wire.ConcurrencyAck
	fail    error
	patient []bool
	during  func() // happens while the question is decided; may be nil
}

func (f *fakeConcurrency) Report(_ context.Context, _ string, patient bool, _ wire.ConcurrencyReport) (wire.ConcurrencyAck, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.patient = append(f.patient, patient)
	if f.during != nil {
		f.during()
	}
	return f.answer, f.fail
}

func TestOnlyPatientAgentsAreToldToWait(t *testing.T) {
	const reason = "Queued in concurrency group 'g'"
	tests := []struct {
		name     string
		version  string
		features []string
		patient  bool
	}{
		{"our own", "", []string{wire.FeatureFrameAck}, true},
		{"a newer release of the reference", "0.2.0", nil, true},
		{"the reference's", "0.1.24", nil, false},
		{"an unknown one", "", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			groups := &fakeConcurrency{answer: wire.ConcurrencyAck{Action: wire.ConcurrencyWait, Reason: reason, RunID: "r", JobID: "j"}}
			b := newBench(t, func(d *Deps) { d.Concurrency = groups })
			b.engine.give("a", "j")
			m := agent("a", tt.features...)
			m.Version = tt.version
			p, _ := b.join(t, m)
			p.send(wire.ConcurrencyReport{MessageID: "m", RunID: "r", JobID: "j", Group: "g"})
			want := wire.ConcurrencyAck{RequestID: "m", Action: wire.ConcurrencyWait, Reason: reason, RunID: "r", JobID: "j"}
			if !tt.patient {
				want.Action = wire.ConcurrencyCancel
			}
			if d := cmp.Diff(want, expect[wire.ConcurrencyAck](p)); d != "" {
				t.Error(d)
			}
			if len(tt.features) > 0 {
				expect[wire.Ack](p)
			}
			if d := cmp.Diff([]bool{tt.patient}, groups.patient); d != "" {
				t.Error(d)
			}
			p.settle()
			if offered := len(ready(b)) > 0; offered != tt.patient {
				t.Errorf("the agent is offered work: %v", offered)
			}
		})
	}
}

func TestNothingIsHeardOfAJobThatWasTakenAway(t *testing.T) {
	b := newBench(t, func(d *Deps) {
		d.Concurrency = &fakeConcurrency{answer: wire.ConcurrencyAck{Action: wire.ConcurrencyWait, Reason: "in line"}}
	})
	b.engine.give("a", "j", "other")
	m := agent("a")
	m.MaxConcurrency = 2
	p, _ := b.join(t, m)
	p.send(wire.ConcurrencyReport{MessageID: "m", RunID: "r", JobID: "j", Group: "g"})
	expect[wire.ConcurrencyAck](p)
	p.send(chunk("j", 0, "c", "late"))
	p.send(wire.StepStatus{MessageID: "s", RunID: "r", JobID: "j", StepName: "one", State: ci.StepFailed, Timestamp: 1})
	p.send(status("other", "o", ci.JobSuccess))
	p.settle()
	if got := ready(b); len(got) > 0 {
		t.Errorf("the agent is offered work before it has ended the job: %q", got)
	}
	p.send(status("j", "e", ci.JobFailed))
	p.settle()
	if d := cmp.Diff([]string{"connected a", "job other success"}, b.engine.seen()); d != "" {
		t.Errorf("the engine heard (-want +got):\n%s", d)
	}
	if lines := b.logs.lines(); len(lines) > 0 {
		t.Errorf("stored %q", lines)
	}
	if got := ready(b); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("ready: %q", got)
	}
	p.send(status("j", "f", ci.JobRunning)) // given out again
	p.settle()
	if calls := b.engine.seen(); calls[len(calls)-1] != "job j running" {
		t.Errorf("the next delivery of the job is not heard: %q", calls)
	}
}

func TestAReportThatTheStoreDidNotTakeComesAgain(t *testing.T) {
	b := newBench(t, func(d *Deps) { d.Concurrency = &fakeConcurrency{fail: errors.New("database is down")} })
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	p.send(wire.ConcurrencyReport{MessageID: "m", RunID: "r", JobID: "j", Group: "g"})
	p.expectClose(wire.CloseInternal, wire.ReasonInternal)
}

// fakeApprovals gives one answer.
type fakeApprovals struct{ answer *wire.ApprovalResolved }

func (f fakeApprovals) Request(context.Context, string, wire.ApprovalRequest) (*wire.ApprovalResolved, error) {
	return f.answer, nil
}

func TestAnApprovalIsAnsweredWhenItIsDecided(t *testing.T) {
	request := wire.ApprovalRequest{MessageID: "m", RunID: "r", JobID: "j", StepIndex: 1, StepName: "s", Clauses: []wire.Clause{}, Reason: "why"}
	decided := wire.ApprovalResolved{RequestID: "m", RunID: "r", JobID: "j", StepIndex: 1, Outcome: wire.ApprovalApproved}
	t.Run("at once", func(t *testing.T) {
		b := newBench(t, func(d *Deps) { d.Approvals = fakeApprovals{&decided} })
		b.engine.give("a", "j")
		p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
		p.send(request)
		if d := cmp.Diff(decided, expect[wire.ApprovalResolved](p)); d != "" {
			t.Error(d)
		}
		expect[wire.Ack](p)
	})
	t.Run("later", func(t *testing.T) {
		b := newBench(t, func(d *Deps) { d.Approvals = fakeApprovals{} })
		b.engine.give("a", "j")
		p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
		p.send(request)
		expect[wire.Ack](p)
		if !b.Send("a", decided) {
			t.Fatal("not sent")
		}
		if d := cmp.Diff(decided, expect[wire.ApprovalResolved](p)); d != "" {
			t.Error(d)
		}
	})
}

// TestTheAgentAPIAnswersAsRecorded asks what a real agent asked of a real server.
func TestTheAgentAPIAnswersAsRecorded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBenchOn(t, db, noAuth)
		wanted := map[string]wire.APIResponse{}
		var p *peer
		for _, line := range load(t, "agent-api") {
			if line.Dir == "o2a" {
				if m, err := wire.DecodeFromServer(line.Msg); err != nil {
					t.Fatal(err)
				} else if answer, ok := m.(wire.APIResponse); ok {
					wanted[answer.RequestID] = answer
				}
			}
		}
		for _, line := range load(t, "agent-api") {
			if line.Dir != "a2o" {
				continue
			}
			m, err := wire.DecodeFromAgent(line.Msg)
			if err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case wire.AgentRegister:
				p, _ = b.join(t, m)
			case wire.APIRequest:
				p.send(m)
				compareAPI(t, m.Method, wanted[m.RequestID], expect[wire.APIResponse](p))
			}
		}
	})
}

func compareAPI(t *testing.T, method string, want, got wire.APIResponse) {
	t.Helper()
	if method == "oidc.token.request" { // the recorded server failed to reach its platform; we say that there is none
		if got.Error == "" {
			t.Errorf("%s was answered %+v", method, got)
		}
		return
	}
	if d := cmp.Diff(document(t, want.Result), document(t, got.Result)); d != "" || got.Error != want.Error {
		t.Errorf("%s: %s\n%s", method, got.Error, d)
	}
}

// document is a result without the time at which the agent was seen.
func document(t *testing.T, raw []byte) any {
	t.Helper()
	v := decodeAny(t, raw)
	if hosts, ok := v.([]any); ok {
		for _, host := range hosts {
			host := host.(map[string]any)
			if _, ok := host["lastSeen"].(string); !ok {
				t.Errorf("no time in %v", host)
			}
			delete(host, "lastSeen")
		}
	}
	return v
}

func TestTheInventoryIsAskedByMatchers(t *testing.T) {
	b := newBench(t, noAuth)
	for id, labels := range map[string][]string{"one": {"linux", "gpu"}, "two": {"linux"}, "three": {"mac"}} {
		m := agent(id)
		m.Labels = labels
		b.join(t, m)
	}
	p, _ := b.join(t, agent("asking"))
	tests := []struct {
		name, method, params string
		ids                  []string
		err                  string
	}{
		{"everything", "inventory.query", `{}`, []string{"asking", "one", "three", "two"}, ""},
		{"a group is all of its matchers, groups are alternatives", "inventory.query",
			`{"include":[[{"kind":"exact","value":"linux"},{"kind":"exact","value":"gpu"}],[{"kind":"regex","source":"^m","flags":""}]]}`, []string{"one", "three"}, ""},
		{"exclude wins", "inventory.query",
			`{"include":[[{"kind":"exact","value":"linux"}]],"exclude":[{"kind":"exact","value":"gpu"}]}`, []string{"asking", "two"}, ""},
		{"not a list of groups", "inventory.query", `{"include":[{"kind":"exact","value":"linux"}]}`, nil,
			`inventory.query: include must be a list of lists of matchers and exclude a list of matchers, each {"kind":"exact","value":"…"} or {"kind":"regex","source":"…","flags":"…"}`},
		{"no id", "inventory.get", `{}`, nil, "inventory.get: agentId must be the id of an agent"},
	}
	for _, tt := range tests {
		p.send(wire.APIRequest{RequestID: "q", Method: tt.method, Params: []byte(tt.params)})
		got := expect[wire.APIResponse](p)
		var ids []string
		if got.Error == "" {
			for _, host := range decodeAny(t, got.Result).([]any) {
				ids = append(ids, host.(map[string]any)["agentId"].(string))
			}
		}
		if d := cmp.Diff(tt.ids, ids); d != "" || got.Error != tt.err {
			t.Errorf("%s: %s %q", tt.name, d, got.Error)
		}
	}
}

// fakeEvents notes who emits what in the engine's list of calls.
type fakeEvents struct {
	engine *fakeEngine
	answer wire.EventEmitResponse
	fail   error
	held   chan struct{} // nil: at once
}

func (f *fakeEvents) Emit(_ context.Context, job engine.Owned, m wire.EventEmit) (wire.EventEmitResponse, error) {
	if f.held != nil {
		<-f.held
	}
	return f.answer, errors.Join(f.engine.note("emit "+m.EventName+" "+job.RunID), f.fail)
}

func withEvents(events *fakeEvents) option {
	return func(d *Deps) {
		events.engine = d.Engine.(*fakeEngine)
		d.Events = events
	}
}

func TestAnEventIsAnsweredOnceItIsStored(t *testing.T) {
	tests := []struct {
		name   string
		events *fakeEvents
		want   wire.EventEmitResponse
	}{
		{"stored", &fakeEvents{answer: wire.EventEmitResponse{DeliveryID: "e1"}}, wire.EventEmitResponse{RequestID: "m", DeliveryID: "e1"}},
		{"refused", &fakeEvents{answer: wire.EventEmitResponse{Error: "Event name is reserved"}},
			wire.EventEmitResponse{RequestID: "m", Error: "Event name is reserved"}},
		{"trouble of the server", &fakeEvents{fail: errors.New("the store at 10.0.0.1 is down")}, wire.EventEmitResponse{RequestID: "m", Error: "internal error"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, withEvents(tt.events))
			b.engine.give("a", "j")
			p, _ := b.join(t, agent("a"))
			p.send(wire.EventEmit{RequestID: "m", JobID: "j", EventName: "built"})
			if d := cmp.Diff(tt.want, expect[wire.EventEmitResponse](p)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAnEventOfAJobIsStoredBeforeTheJobEnds(t *testing.T) {
	held := make(chan struct{})
	b := newBench(t, withEvents(&fakeEvents{held: held}))
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(wire.EventEmit{RequestID: "1", JobID: "theirs", EventName: "forged"})
	p.send(wire.EventEmit{RequestID: "2", JobID: "j", EventName: "built"})
	p.send(status("j", "3", ci.JobSuccess))
	close(held)
	b.engine.await(t, "job j success")
	if d := cmp.Diff([]string{"connected a", "emit built run-of-j", "job j success"}, b.engine.seen()); d != "" {
		t.Error(d)
	}
}
