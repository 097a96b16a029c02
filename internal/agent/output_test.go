//go:build unix

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

func TestSecretsAreMaskedOnEveryWayOut(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "secrets", func(c *Config) {
		c.Token = "kat_agent"
		c.Environ = append(c.Environ, "KICI_AGENT_TOKEN=kat_agent", "MY_PASSWORD=hunter2", "KICI_DATABASE_URL=postgres://u:pw@h/d")
	})
	p := s.accept()
	expect[wire.AuthRequest](p)
	p.send(wire.AuthSuccess{ConnectionID: "c"})
	p.register()
	p.send(dispatch("job-1", map[string]any{"jobEnv": map[string]any{"API_KEY": "plain-key", "LEVEL": "high s3cret-value"}},
		func(d *wire.JobDispatch) { d.Secrets = map[string]string{"A": "s3cret-value"} }))
	_, data := terminal(p)
	if data.Error != "job ***" || string(data.StepResults[0].Error) != `"failed with ***"` {
		t.Errorf("data = %+v", data)
	}
	if got := lines(p, 0); !cmp.Equal(got, []string{"value *** base64 *** token ***"}) {
		t.Errorf("log = %q", got)
	}
	text := p.transcript()
	text = text[strings.Index(text, "agent.register"):] // the token was said where it belongs
	for _, secret := range []string{"s3cret-value", "czNjcmV0LXZhbHVl", "kat_agent", "plain-key", "hunter2", "postgres"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s left the agent", secret)
		}
	}
	vars := map[string]wire.EnvVar{}
	for _, v := range all[wire.JobContext](p)[0].Context.EnvVars {
		vars[v.Name] = v
	}
	for name, want := range map[string]wire.EnvVar{
		"KICI_AGENT_TOKEN": {Name: "KICI_AGENT_TOKEN", Value: "***", Category: "secret"},
		"API_KEY":          {Name: "API_KEY", Value: "***", Category: "secret"},
		"LEVEL":            {Name: "LEVEL", Value: "high ***", Category: "user"},
	} {
		if vars[name] != want {
			t.Errorf("%s = %+v", name, vars[name])
		}
	}
}

func TestTheEnvironmentOfStepsIsBuiltFromNothing(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "request", func(c *Config) {
		c.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/a", "KICI_AGENT_TOKEN=kat_x", "AWS_SECRET=x", "TZ=UTC"}
		c.StepTimeout = 90 * time.Second
	})
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", map[string]any{
		"env": map[string]any{"KICI_RUN_ID": "r", "A": "1"}, "environmentVars": map[string]any{"A": "2", "B": "2"},
		"jobEnv": map[string]any{"B": "3", "KICI_AGENT_TOKEN": "kat_y"}, "timeout": 60000, "orchestratorPrivateKey": "private",
	}, func(d *wire.JobDispatch) {
		d.Secrets = map[string]string{"S": "s3cret-value"}
		d.Token = "clone-token"
	}))
	terminal(p)
	got := lines(p, 0)
	want := []string{"A=2", "B=3", "FORCE_COLOR=1", "HOME=/home/a", "KICI_RUN_ID=r", "PATH=" + os.Getenv("PATH"), "TZ=UTC"}
	if marks := slices.IndexFunc(got, func(kv string) bool { return strings.HasPrefix(kv, "_KICI_GROUP=") }); marks >= 0 {
		got = slices.Delete(got, marks, marks+1) // where no control group can be made
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("environment:\n%s", d)
	}
	var request map[string]any
	log := strings.Join(lines(p, -1), "\n")
	if err := json.Unmarshal([]byte(log[strings.Index(log, "{"):]), &request); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	for name, want := range map[string]any{"runId": "run-1", "jobId": "job-1", "jobName": "build", "sourceFile": ".kici/workflows/ci.ts",
		"workflowName": "ci", "branch": "main", "jobTimeoutMs": 60000.0, "defaultStepTimeoutMs": 90000.0, "checkout": false, "workDir": lines(p, 1)[0]} {
		if !cmp.Equal(request[name], want) {
			t.Errorf("request.%s = %v, want %v", name, request[name], want)
		}
	}
	if request["secrets"] == nil || request["event"] == nil {
		t.Errorf("request = %v", request)
	}
	for _, name := range []string{"token", "orchestratorPrivateKey", "timeout"} {
		if request[name] != nil {
			t.Errorf("the runner was given %s", name)
		}
	}
}

func TestLogsAreBoundedAndCutIntoLines(t *testing.T) {
	t.Run("limit", func(t *testing.T) {
		s := newFakeServer(t)
		startAgent(t, s.url, "flood")
		p := s.accept()
		p.register(allFeatures...)
		p.send(dispatch("job-1", nil, func(d *wire.JobDispatch) { d.MaxLogSizeBytes = 100_000 }))
		p.ack(expect[wire.JobAck](p).MessageID)
		terminal(p)
		got := lines(p, 0)
		if want := 100_000/507 + 2; len(got) != want || got[len(got)-1] != "[TRUNCATED: log output exceeded 100000 bytes]" {
			t.Errorf("%d lines, want %d; the last is %q", len(got), want, got[len(got)-1])
		}
		for _, c := range all[wire.LogChunk](p) {
			if len(c.Lines) > 50 {
				t.Errorf("a chunk of %d lines", len(c.Lines))
			}
		}
	})
	t.Run("long line", func(t *testing.T) {
		s := newFakeServer(t)
		startAgent(t, s.url, "long-lines")
		p := s.accept()
		p.register()
		p.send(dispatch("job-1", nil))
		terminal(p)
		got := lines(p, 0)
		if len(got) != 2 || len(got[0]) > 64<<10 || strings.Join(got, "") != strings.Repeat("é", 50_000) {
			t.Errorf("%d lines", len(got))
		}
	})
}

func TestALoudStepWaitsForASlowServerAndLosesNothing(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.url, "flood", func(c *Config) { c.MaxLogBytes = 1 << 30 })
	p := s.accept()
	p.register(wire.FeatureFrameAck)
	resume := p.stopReading()
	p.send(dispatch("job-1", nil))
	// The step is held up once the socket and a mebibyte of frames are full.
	for a.metrics.Pausing.Load() == 0 {
		_, _, changed := a.ledger.Room()
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond): // waiting changes nothing in the ledger
		}
	}
	if _, held, _ := a.ledger.Room(); held > 2<<20 { // the rest is in the socket's buffers
		t.Errorf("%d bytes are held in the agent", held)
	}
	resume()
	if end, _ := terminal(p); end.State != ci.JobSuccess {
		t.Errorf("end = %+v", end)
	}
	got := lines(p, 0)
	if len(got) != 40_000 {
		t.Fatalf("%d lines, want 40000", len(got))
	}
	for i, l := range got {
		if !strings.HasPrefix(l, fmt.Sprintf("%06d ", i)) {
			t.Fatalf("line %d is %.20q", i, l)
		}
	}
}

func TestDropModeLosesLinesInsteadOfTimeAndSaysSo(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.url, "flood", func(c *Config) { c.MaxLogBytes, c.Backpressure = 1<<30, BackpressureDrop })
	p := s.accept()
	p.register(wire.FeatureFrameAck)
	resume := p.stopReading()
	p.send(dispatch("job-1", nil))
	for a.metrics.Dropped.Load() == 0 {
		_, _, changed := a.ledger.Room()
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond): // what is dropped changes nothing in the ledger
		}
	}
	resume()
	terminal(p)
	kept, dropped := 0, 0
	for _, l := range lines(p, 0) {
		var n int
		if _, err := fmt.Sscanf(l, "[%d lines dropped due to backpressure]", &n); err == nil {
			dropped += n
		} else {
			kept++
		}
	}
	if dropped == 0 || kept+dropped != 40_000 {
		t.Errorf("%d lines kept and %d told as dropped, want 40000 together", kept, dropped)
	}
}

func TestQuestionsOfStepsAreRelayed(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "ask")
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	p.ack(expect[wire.JobAck](p).MessageID)
	e := expect[wire.EventEmit](p)
	p.send(wire.EventEmitResponse{RequestID: e.RequestID, DeliveryID: "ev-1"})
	q := expect[wire.APIRequest](p)
	p.send(wire.APIResponse{RequestID: q.RequestID, Result: json.RawMessage(`{"hostname":"h"}`)})
	c := expect[wire.UserCacheRestoreRequest](p)
	p.send(wire.UserCacheRestoreResponse{RequestID: c.MessageID, Hit: true, DownloadURL: "http://localhost:9/x"})
	saved := expect[wire.UserCacheSaveComplete](p)
	ap := expect[wire.ApprovalRequest](p)
	if len(ap.Clauses) != 1 || ap.Clauses[0].Team != "ops" {
		t.Errorf("approval = %+v", ap)
	}
	p.ack(ap.MessageID) // received; the answer may come on another connection
	p.cut()
	p = s.accept()
	p.register(allFeatures...)
	if again := expect[wire.UserCacheSaveComplete](p); again != saved { // the step was told that it is stored
		t.Errorf("told again %+v", again)
	}
	p.ack(saved.MessageID)
	if again := expect[wire.ApprovalRequest](p); again.MessageID != ap.MessageID {
		t.Errorf("approval was asked again as %s", again.MessageID)
	}
	p.send(wire.ApprovalResolved{RequestID: ap.MessageID, RunID: "run-1", JobID: "job-1", Outcome: wire.ApprovalApproved})
	terminal(p)
	host := strings.Split(strings.TrimPrefix(s.url, "ws://"), ":")[0]
	want := []string{
		`{"deliveryId":"ev-1","requestId":"1","type":"event.emit.response"}`,
		`{"requestId":"2","result":{"hostname":"h"},"type":"agent.api.response"}`,
		`{"downloadUrl":"http://` + host + `:9/x","hit":true,"requestId":"3","type":"cache.response"}`,
		`{"requestId":"4","type":"cache.response"}`,
		`{"outcome":"approved","requestId":"5","type":"approval.resolved"}`,
		`{"error":"this agent cannot reach other hosts by SSH, which kici.preBootSend needs","requestId":"6","type":"agent.api.response"}`,
	}
	if d := cmp.Diff(want, lines(p, 0)); d != "" {
		t.Errorf("answers:\n%s", d)
	}
}

// A server that starts anew in between costs no step its artifact.
func TestAnArtifactIsAskedForAgainAfterALostConnection(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "keep")
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	p.ack(expect[wire.JobAck](p).MessageID)
	begin := expect[wire.ArtifactUploadRequest](p)
	if begin.JobID != "job-1" || begin.Name != "a" || begin.SizeBytes == nil || *begin.SizeBytes != 7 {
		t.Errorf("asked %+v", begin)
	}
	p.cut()
	p = s.accept()
	p.register(allFeatures...)
	if again := expect[wire.ArtifactUploadRequest](p); again.MessageID != begin.MessageID {
		t.Errorf("asked again as %s", again.MessageID)
	}
	p.send(wire.ArtifactUploadResponse{RequestID: begin.MessageID, UploadID: "u", UploadURL: "http://localhost:9/x", MaxBytes: 7})
	unknown := expect[wire.ArtifactUploadRequest](p)
	if unknown.SizeBytes != nil {
		t.Errorf("asked %+v", unknown)
	}
	p.send(wire.ArtifactUploadResponse{RequestID: unknown.MessageID, Error: "the quota is used up"})
	commit := expect[wire.ArtifactCommitRequest](p)
	if commit.UploadID != "u" || commit.SHA256 != "07" || commit.SizeBytes != 7 {
		t.Errorf("committed %+v", commit)
	}
	p.send(wire.ArtifactCommitResponse{RequestID: commit.MessageID})
	terminal(p)
	host := strings.Split(strings.TrimPrefix(s.url, "ws://"), ":")[0]
	want := []string{
		`{"maxBytes":7,"requestId":"1","type":"artifact.response","uploadId":"u","uploadUrl":"http://` + host + `:9/x"}`,
		`{"error":"the quota is used up","requestId":"2","type":"artifact.response"}`,
		`{"requestId":"3","type":"artifact.response"}`,
	}
	if d := cmp.Diff(want, lines(p, 0)); d != "" {
		t.Errorf("answers:\n%s", d)
	}
}

// A server that starts anew in between costs no step its attestation: it is asked again, and told again that the bundle is
// there until it has acknowledged that.
func TestAnAttestationSurvivesLostConnections(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "attest")
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	p.ack(expect[wire.JobAck](p).MessageID)
	again := func() {
		p.cut()
		p = s.accept()
		p.register(allFeatures...)
	}
	token := expect[wire.APIRequest](p)
	again()
	if repeated := expect[wire.APIRequest](p); repeated.RequestID != token.RequestID || string(repeated.Params) != `{"jobId":"job-1","audience":"a"}` {
		t.Errorf("asked again for %+v", repeated)
	}
	p.send(wire.APIResponse{RequestID: token.RequestID, Result: json.RawMessage(`{"token":"aaa.bbb.ccc"}`)})
	place := expect[wire.ProvenanceUploadRequest](p)
	again()
	if repeated := expect[wire.ProvenanceUploadRequest](p); repeated != place {
		t.Errorf("asked again for %+v", repeated)
	}
	p.send(wire.ProvenanceUploadResponse{RequestID: place.MessageID, UploadURL: "http://localhost:9/x"})
	done := expect[wire.ProvenanceUploadComplete](p)
	if want := (wire.ProvenanceUploadComplete{MessageID: done.MessageID, JobID: "job-1", SubjectName: "app", SubjectDigest: "07", MediaType: "m"}); done != want {
		t.Errorf("told %+v", done)
	}
	again()
	if repeated := expect[wire.ProvenanceUploadComplete](p); repeated != done {
		t.Errorf("told again %+v", repeated)
	}
	p.ack(done.MessageID)
	terminal(p)
	if got := lines(p, 0); len(got) != 3 || got[0] != `{"requestId":"1","result":{"token":"***"},"type":"agent.api.response"}` {
		t.Errorf("answers %q", got)
	}
	p.send(dispatch("job-2", nil))
	expect(p, func(m wire.JobAck) bool { return m.JobID == "job-2" }) // so that the acknowledgement has been read
	again()
	terminal(p) // which nobody has acknowledged; what was answered or acknowledged before it does not come again
	if got := framesOf(p, "agent.api.request", "provenance.upload.request", "provenance.upload.complete"); len(got) != 0 {
		t.Errorf("said again %q", got)
	}
}

// framesOf lists the frames of some types as they came.
func framesOf(p *peer, types ...string) (list []string) {
	_, raws := p.heard()
	for _, raw := range raws {
		for _, name := range types {
			if strings.HasPrefix(raw, `{"type":"`+name+`"`) {
				list = append(list, raw)
			}
		}
	}
	return list
}

// A server that does not know the frames would end the connection over them.
func TestAnotherServerIsNotAskedForArtifacts(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "keep")
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", nil))
	terminal(p)
	for i, line := range lines(p, 0) {
		if want := fmt.Sprintf(`{"error":"this server keeps no artifacts","requestId":"%d","type":"artifact.response"}`, i+1); line != want {
			t.Errorf("answer %s", line)
		}
	}
	_, raws := p.heard()
	for _, raw := range raws {
		if strings.HasPrefix(raw, `{"type":"artifact.`) {
			t.Errorf("sent %s", raw)
		}
	}
}

func TestAJobWaitsForItsConcurrencyGroup(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "concurrency")
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", nil))
	r := expect[wire.ConcurrencyReport](p)
	if r.Group != "deploy" {
		t.Errorf("report = %+v", r)
	}
	p.send(wire.ConcurrencyAck{RequestID: r.MessageID, Action: wire.ConcurrencyWait, Reason: "taken"})
	// The reference wakes a waiter under an id of its own.
	p.send(wire.ConcurrencyAck{RequestID: "other", Action: wire.ConcurrencyProceed, RunID: "run-1", JobID: "job-1"})
	terminal(p)
	if d := cmp.Diff([]string{"wait taken", "proceed <nil>"}, lines(p, -1)[1:]); d != "" {
		t.Errorf("log:\n%s", d)
	}
}

// An agent that waits for a place asks again on each connection. It is told to wait again then, which its runner must not
// hear: a second time means to a runner that something is wrong.
func TestAJobGoesOnWaitingForItsGroupOverALostConnection(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "concurrency")
	p := s.accept()
	p.register(wire.FeatureFrameAck)
	p.send(dispatch("job-1", nil))
	r := expect[wire.ConcurrencyReport](p)
	p.send(wire.ConcurrencyAck{RequestID: r.MessageID, Action: wire.ConcurrencyWait, Reason: "taken"})
	for range 2 {
		p.cut()
		p = s.accept()
		p.register(wire.FeatureFrameAck)
		if again := expect[wire.ConcurrencyReport](p); again.MessageID != r.MessageID {
			t.Fatalf("asked again as %+v, before as %+v", again, r)
		}
		p.send(wire.ConcurrencyAck{RequestID: r.MessageID, Action: wire.ConcurrencyWait, Reason: "still taken"})
	}
	p.send(wire.ConcurrencyAck{RequestID: r.MessageID, Action: wire.ConcurrencyProceed, RunID: "run-1", JobID: "job-1"})
	terminal(p)
	if got := lines(p, -1); slices.Contains(got, "wait still taken") || !slices.Contains(got, "proceed <nil>") {
		t.Errorf("log: %q", got)
	}
}
