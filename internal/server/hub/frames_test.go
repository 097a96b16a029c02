package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/logs"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
	"kici/internal/server/timeline"
)

func dialRaw(t *testing.T, b *bench, origin ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	header := http.Header{}
	for _, o := range origin {
		header.Set("Origin", o)
	}
	return websocket.Dial(ctx, b.url, &websocket.DialOptions{HTTPHeader: header})
}

func chunk(job string, step int, id string, lines ...string) wire.LogChunk {
	return wire.LogChunk{MessageID: id, RunID: "claimed", JobID: job, StepIndex: step, Lines: lines, Timestamp: 7}
}

func status(job, id string, state ci.JobStatus) wire.JobStatus {
	return wire.JobStatus{MessageID: id, RunID: "claimed", JobID: job, State: state, Timestamp: 7}
}

func TestFramesReachTheirOwnersInOrder(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(wire.JobAck{MessageID: "1", RunID: "r", JobID: "j", Timestamp: 1})
	p.send(status("j", "2", "running"))
	p.send(wire.StepStatus{MessageID: "3", RunID: "r", JobID: "j", StepName: "one", State: "running", Timestamp: 1})
	p.send(chunk("j", 0, "4", "hello", ""))
	p.send(wire.JobHeartbeat{RunID: "r", JobID: "j", Timestamp: 1})
	p.send(wire.StepStatus{MessageID: "5", RunID: "r", JobID: "j", StepName: "one", State: "success", Timestamp: 1})
	p.send(status("j", "6", "success"))
	p.settle()
	want := []string{"connected a", "acked j", "job j running", "step j one running", "beat j", "step j one success", "job j success"}
	if diff := cmp.Diff(want, b.engine.seen()); diff != "" {
		t.Error(diff)
	}
	wantChunk := logs.Chunk{RunID: "run-of-j", JobID: "j", JobName: "name-of-j", MessageID: "4", At: 7, Lines: []string{"hello", ""}}
	if diff := cmp.Diff([]logs.Chunk{wantChunk}, b.logs.chunks); diff != "" {
		t.Error(diff)
	}
}

func TestBinaryFramesAreRead(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	raw, err := wire.Encode(status("j", "1", "running"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Write(t.Context(), websocket.MessageBinary, raw); err != nil {
		t.Fatal(err)
	}
	b.engine.await(t, "job j running")
}

func TestFramesAreAcknowledgedAfterTheyAreStored(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j", "old")
	b.engine.past["old"] = true
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	sent := []wire.Message{
		wire.JobAck{MessageID: "ack", RunID: "r", JobID: "j", Timestamp: 1},
		status("j", "running", "running"),
		chunk("j", 0, "c1", "x"), chunk("j", 0, "c2", "y"), chunk("j", 0, "c3", "z"),
		chunk("j", 1, "d1", "x"),
		chunk("j", 0, "c4", "x"), chunk("j", 0, "c5", "x"),
		wire.StepStatus{MessageID: "step", RunID: "r", JobID: "j", StepName: "one", State: "success", Timestamp: 1},
		status("j", "end", "success"),
		chunk("old", 0, "late", "nobody needs this"),
		status("old", "replay", "failed"),
		wire.ConcurrencyReport{MessageID: "group", RunID: "r", JobID: "j", Group: "g"},
	}
	for _, m := range sent {
		p.send(m)
	}
	var got []string
	for len(got) == 0 || got[len(got)-1] != "group" {
		switch m, err := p.read(); m := m.(type) {
		case wire.Ack:
			if m.Through {
				m.MessageID += " and before"
			}
			got = append(got, m.MessageID)
		case wire.ConcurrencyAck:
		default:
			t.Fatalf("got %T, %v", m, err)
		}
	}
	// How many chunks one acknowledgement covers, and what of a job is applied together, depends on time; what is covered, and
	// the order of each kind, must not.
	chunks := map[string]bool{"c1": true, "c2": true, "c3": true, "c4": true, "c5": true, "d1": true, "late": true}
	var lines, rest []string
	for _, id := range got {
		switch id = strings.TrimSuffix(id, " and before"); {
		case !chunks[id]:
			rest = append(rest, id)
		case id == "c3" || id == "d1" || id == "c5" || id == "late":
			lines = append(lines, id)
		}
	}
	if diff := cmp.Diff([]string{"c3", "d1", "c5", "late"}, lines); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ack", "running", "step", "end", "replay", "group"}, rest); diff != "" {
		t.Error(diff)
	}
	for _, call := range b.engine.seen() {
		if strings.Contains(call, "old") {
			t.Errorf("a frame about a job of the past was applied: %s", call)
		}
	}
	if lines := b.logs.lines(); len(lines) != 6 {
		t.Errorf("stored %q", lines)
	}
}

func TestOneAcknowledgementCoversManyChunks(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	const n = 1000
	for i := range n {
		p.send(chunk("j", 0, fmt.Sprint(i), "x"))
	}
	acks := 0
	for {
		ack := expect[wire.Ack](p)
		acks++
		if ack.MessageID == fmt.Sprint(n-1) {
			break
		}
	}
	if acks > n/2 {
		t.Errorf("%d acknowledgements for %d chunks", acks, n)
	}
}

func TestAgentsWithoutTheFeatureGetNoAcknowledgements(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(status("j", "1", "running"))
	p.send(chunk("j", 0, "2", "x"))
	p.send(wire.UserCacheRestoreRequest{MessageID: "3", JobID: "j", Key: "k"})
	expect[wire.UserCacheRestoreResponse](p)
}

func TestALateJobAckIsFencedOff(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "requeued")
	b.engine.fenced["requeued"] = true
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck, wire.FeatureStartFence))
	for _, job := range []string{"requeued", "somebody-elses"} {
		p.send(wire.JobAck{MessageID: "m", RunID: "r", JobID: job, Timestamp: 1})
		got := expect[wire.JobCancel](p)
		if got.JobID != job || got.RunID != "r" || got.Reason != "job no longer assigned to this agent" {
			t.Errorf("got %+v", got)
		}
	}
	p.settle() // no acknowledgement followed: it would have been the permission to start
}

func TestAFailingStoreSendsTheAgentAway(t *testing.T) {
	tests := []struct {
		name  string
		frame wire.Message
		spoil func(b *bench)
	}{
		{"job.status", status("j", "1", "success"), func(b *bench) { b.engine.setFail(errors.New("database is down")) }},
		{"job.ack", wire.JobAck{MessageID: "1", RunID: "r", JobID: "j", Timestamp: 1}, func(b *bench) { b.engine.setFail(errors.New("database is down")) }},
		{"log.chunk", chunk("j", 0, "1", "x"), func(b *bench) { b.logs.fail = logs.ErrFull }},
		{"a request", wire.UserCacheRestoreRequest{MessageID: "1", JobID: "j", Key: "k"}, func(b *bench) { b.engine.setFail(errors.New("database is down")) }},
		{"a registration", agent("a"), func(b *bench) { b.engine.setFail(errors.New("database is down")) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.engine.give("a", "j")
			p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
			p.settle()
			tt.spoil(b)
			p.send(tt.frame)
			if _, ok := tt.frame.(wire.AgentRegister); ok {
				expect[wire.RegisterAck](p)
			}
			p.expectClose(wire.CloseInternal, wire.ReasonInternal)
		})
	}
}

func TestFramesAboutOtherAgentsJobs(t *testing.T) {
	b := newBench(t)
	b.engine.give("b", "theirs")
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	for i := range 4 {
		p.send(chunk("theirs", 0, fmt.Sprint(i), "x"))
	}
	p.settle()
	b.clock.advance(b.Settings.ViolationWindow) // they are forgiven
	for i := range 5 {
		p.send(status("theirs", fmt.Sprint(i), "success"))
	}
	p.expectClose(wire.CloseGoingAway, "Too many ownership violations")
	if calls := b.engine.seen(); calls[0] != "connected a" || len(calls) > 2 {
		t.Errorf("calls %q", calls)
	}
	if lines := b.logs.lines(); len(lines) > 0 {
		t.Errorf("stored %q", lines)
	}
}

func TestRequestsAreAnsweredAtOnce(t *testing.T) {
	const notOwned = "this job is not owned by this agent"
	approval := wire.ApprovalRequest{MessageID: "m", RunID: "r", StepIndex: 1, StepName: "s", Clauses: []wire.Clause{}, Reason: "why"}
	tests := []struct {
		name    string
		request func(job string) wire.Message
		owned   wire.Message
		foreign wire.Message
	}{
		{"build cache", func(j string) wire.Message {
			return wire.CacheUploadRequest{MessageID: "m", JobID: j, CacheType: "deps", Platform: "linux", Arch: "x64"}
		}, wire.CacheUploadResponse{RequestID: "m"}, wire.CacheUploadResponse{RequestID: "m"}},
		{"user cache restore", func(j string) wire.Message { return wire.UserCacheRestoreRequest{MessageID: "m", JobID: j, Key: "k"} },
			wire.UserCacheRestoreResponse{RequestID: "m"}, wire.UserCacheRestoreResponse{RequestID: "m"}},
		{"user cache save", func(j string) wire.Message { return wire.UserCacheSaveRequest{MessageID: "m", JobID: j, Key: "k"} },
			wire.UserCacheSaveResponse{RequestID: "m", Skip: true}, wire.UserCacheSaveResponse{RequestID: "m", Skip: true}},
		{"provenance", func(j string) wire.Message {
			return wire.ProvenanceUploadRequest{MessageID: "m", JobID: j, SubjectDigest: "07"}
		}, wire.ProvenanceUploadResponse{RequestID: "m"}, wire.ProvenanceUploadResponse{RequestID: "m"}},
		{"approval", func(j string) wire.Message { a := approval; a.JobID = j; return a },
			wire.ApprovalResolved{RequestID: "m", RunID: "r", JobID: "mine", StepIndex: 1, Outcome: "rejected", Reason: "Approvals not available on this orchestrator"},
			wire.ApprovalResolved{RequestID: "m", RunID: "r", JobID: "theirs", StepIndex: 1, Outcome: "rejected", Reason: notOwned}},
		{"concurrency group", func(j string) wire.Message {
			return wire.ConcurrencyReport{MessageID: "m", RunID: "r", JobID: j, Group: "g"}
		},
			wire.ConcurrencyAck{RequestID: "m", Action: "proceed"}, wire.ConcurrencyAck{RequestID: "m", Action: "cancel", Reason: notOwned}},
		{"event", func(j string) wire.Message { return wire.EventEmit{RequestID: "m", JobID: j, EventName: "e"} },
			wire.EventEmitResponse{RequestID: "m", Error: "Event routing not available"}, wire.EventEmitResponse{RequestID: "m", Error: notOwned}},
		{"API about a job", func(j string) wire.Message {
			return wire.APIRequest{RequestID: "m", Method: "oidc.token.request", Params: json.RawMessage(`{"jobId":"` + j + `"}`)}
		}, wire.APIResponse{RequestID: "m", Error: "Unknown API method 'oidc.token.request'"}, wire.APIResponse{RequestID: "m", Error: notOwned}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.engine.give("a", "mine")
			p, _ := b.join(t, agent("a"))
			for job, want := range map[string]wire.Message{"mine": tt.owned, "theirs": tt.foreign} {
				p.send(tt.request(job))
				got, err := p.read()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: %s", job, diff)
				}
			}
		})
	}
}

func TestAnUnknownAPIMethod(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	p.send(wire.APIRequest{RequestID: "1", Method: "host.launch"})
	if got := expect[wire.APIResponse](p); got.Error != "Unknown API method 'host.launch'" {
		t.Errorf("got %+v", got)
	}
}

func TestFramesThatCannotBeRead(t *testing.T) {
	tests := []struct {
		name, frame string
		code        int // 0: the connection stays
		reason      string
		notice      bool
	}{
		{name: "not JSON", frame: "hello", code: 4003, reason: "Malformed JSON"},
		{name: "not an object", frame: "[1]", code: 4003, reason: "Malformed JSON"},
		{name: "known type, bad member", frame: `{"type":"job.ack","messageId":"m"}`, code: 4003, reason: "Invalid message", notice: true},
		{name: "auth.request again", frame: `{"type":"auth.request","token":"t","protocolVersion":1}`, code: 4003, reason: "Invalid message", notice: true},
		{name: "unknown type", frame: `{"type":"artifact.begin","x":null}`},
		{name: "bad run.event", frame: `{"type":"run.event","runId":7}`},
		{name: "bad job.context", frame: `{"type":"job.context","runId":"r","jobId":"j","context":{"envVars":[{"name":"A","value":"b","category":"private"}]}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			p, _ := b.join(t, agent("a"))
			p.raw(tt.frame)
			if tt.notice {
				if got := expect[wire.ErrorFrame](p); got.Code != "INVALID_MESSAGE" || got.Message != "Invalid message format" {
					t.Errorf("got %+v", got)
				}
			}
			if tt.code != 0 {
				p.expectClose(tt.code, tt.reason)
				return
			}
			p.settle()
		})
	}
}

func TestTheTimelineTakesEventsAndContexts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBenchOn(t, db, func(d *Deps) { d.Scalers = fakeScalers{"a": {Scaler: "c1", Backend: "container"}} })
		b.engine.give("a", "j")
		p, _ := b.join(t, agent("a"))
		p.raw(`{"type":"run.event","runId":"claimed","eventType":"agent.execution.start","timestampMs":5.5,"sourceService":"platform","jobId":"j","durationMs":null}`)
		p.raw(`{"type":"run.event","runId":"claimed","eventType":"x","timestampMs":5,"sourceService":"agent","jobId":null,"durationMs":null}`)
		p.send(wire.JobContext{RunID: "claimed", JobID: "j", Context: wire.Environment{EnvVars: []wire.EnvVar{{Name: "KICI_AGENT_TOKEN", Value: "kat_clear", Category: "system"}}}})
		p.send(wire.JobContext{RunID: "claimed", JobID: "j", Context: wire.Environment{GitRef: strings.Repeat("x", 300<<10)}})
		p.settle()
		if err := b.storeTelemetry(t.Context()); err != nil {
			t.Fatal(err)
		}
		events, err := timeline.List(t.Context(), db.Read(), "run-of-j")
		if err != nil {
			t.Fatal(err)
		}
		want := []timeline.Event{{RunID: "run-of-j", JobID: "j", At: 5, Type: "agent.execution.start", Source: "agent"}}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
		raw, err := timeline.ContextOf(t.Context(), db.Read(), "j")
		if err != nil {
			t.Fatal(err)
		}
		if s := string(raw); strings.Contains(s, "kat_clear") || !strings.Contains(s, `"scalerContext":{"backendType":"container","scalerName":"c1"}`) {
			t.Errorf("stored %s", s)
		}
	})
}
