package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing/iotest"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/wire"
	"kici/internal/server/auth"
	"kici/internal/server/logs"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// realAgent is an agent of the recorded kind: one job at a time, no extension, nothing kept for later.
type realAgent struct {
	*performance
	id     string
	labels []string
	token  string // "" is the one of all
	link   string // for an upload, of the frame that it heard last
	peer   *servertest.Peer
	jobs   map[string]wire.JobDispatch // by name, the newest
	holds  map[string]bool             // by job id
	heard  map[string]bool             // frames, as they came
}

func (a *realAgent) act(what, which, more string) {
	a.t.Helper()
	d := a.jobs[which]
	switch what {
	case "joins":
		if which == "as" {
			a.id, which, more = more, "", ""
		}
		if which == "once" {
			a.token, which = a.ephemeral(), ""
		}
		a.join(strings.Fields(which + " " + more))
	case "registers":
		a.register()
	case "is":
		if which == "reached" {
			servertest.Await(a.t, a.line, a.peer.Reached, nil)
			return
		}
		a.goes(which, more)
	case "leaves":
		a.peer.Settle()
		a.peer.Leave()
		a.peer = nil
	case "forgets":
		clear(a.holds)
	case "gets":
		a.gets(which)
	case "takes":
		a.jobs[which] = a.agents[strings.TrimPrefix(more, "from ")].jobs[which]
	case "acks":
		a.report(d, `{"type":"job.ack"}`)
	case "starts":
		a.report(d, `{"type":"job.ack"}`)
		a.report(d, `{"type":"job.status","state":"running"}`)
	case "rejects":
		delete(a.holds, d.JobID)
		a.report(d, fmt.Sprintf(`{"type":"job.reject","reason":%q}`, more))
		a.status()
	case "steps":
		index, state, _ := strings.Cut(more, " ")
		a.report(d, fmt.Sprintf(`{"type":"step.status","stepIndex":%s,"stepName":"s%s","state":%q,"data":{"error":{"message":"m","exitCode":1}}}`, index, index, state))
	case "ends":
		a.ends(d, more)
	case "logs":
		n, err := strconv.Atoi(more)
		if err != nil {
			a.fail("%v", err)
		}
		a.logs(which, d, n)
	case "puts":
		a.puts(more, len(more))
	case "cut":
		a.puts(more, 1)
	case "asks":
		a.send(d, `{"type":"step.approval-request","stepIndex":0,"stepName":"s0","clauses":[],"reason":"ship it"`+more+`}`)
	case "groups":
		a.send(d, fmt.Sprintf(`{"type":"job.concurrency.report","group":%q}`, more))
	case "says":
		a.send(d, more)
	case "hears":
		a.hears(which, more)
	case "stops":
		a.hears("job.cancel", d.JobID)
		a.ends(d, "cancelled")
	default:
		a.fail("nobody knows how to do this")
	}
}

// join registers on a new connection. The registration is what agents of that version send.
func (a *realAgent) join(labels []string) {
	a.t.Helper()
	if len(labels) > 0 {
		a.labels = labels
	} else if a.labels == nil {
		a.labels = []string{"linux"}
	}
	a.peer = a.h.Dial(a.t)
	a.peer.Send(wire.AuthRequest{Token: cmp.Or(a.token, a.h.Token), ProtocolVersion: wire.Version})
	a.hears("auth.success", "")
	a.register()
	a.hears("register.ack", "")
	a.peer.Send(wire.ConfigAck{MessageID: uuid.NewString(), AgentID: a.id})
	a.peer.Send(wire.Heartbeat{Timestamp: 1})
	a.peer.Settle()
}

func (a *realAgent) register() {
	a.t.Helper()
	m := wire.AgentRegister{MessageID: "register-" + a.id, AgentID: a.id, Hostname: a.id, Version: "0.1.24", Platform: "linux", Arch: "x64",
		Labels: append(slices.Clone(a.labels), "kici:os:linux", "kici:arch:x64", "kici:arch:amd64", "kici:host:"+a.id)}
	for _, d := range a.jobs {
		if a.holds[d.JobID] {
			m.InFlightJobs = append(m.InFlightJobs, wire.InFlightJob{JobID: d.JobID, RunID: d.RunID})
		}
	}
	a.peer.Send(m)
}

// ephemeral is a token for this agent alone.
func (a *realAgent) ephemeral() (token string) {
	a.t.Helper()
	tokens := auth.New(a.h.DB, time.Now, slog.New(slog.DiscardHandler))
	err := a.h.DB.Write(a.t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		token, _, err = tokens.CreateEphemeralTx(ctx, tx, auth.NewAgentToken{Agent: a.id, Life: time.Hour})
		return err
	})
	if err != nil {
		a.fail("%v", err)
	}
	return token
}

func (a *realAgent) logs(name string, d wire.JobDispatch, chunks int) {
	a.t.Helper()
	path := logs.Path(d.RunID, name, 0)
	for range chunks {
		lines := make([]string, 10)
		for i := range lines {
			lines[i] = fmt.Sprint("line ", len(a.logged[path])+i)
		}
		a.report(d, fmt.Sprintf(`{"type":"log.chunk","stepIndex":0,"lines":["%s"]}`, strings.Join(lines, `","`)))
		a.logged[path] = append(a.logged[path], lines...)
	}
}

// puts uploads the first bytes of a text whose length it says.
func (a *realAgent) puts(text string, n int) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPut, a.link, io.MultiReader(strings.NewReader(text[:n]), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if err != nil {
		a.fail("%v", err)
	}
	if req.ContentLength = int64(len(text)); n == len(text) {
		req.Body = io.NopCloser(strings.NewReader(text))
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		defer resp.Body.Close()
	}
	if whole := err == nil && resp.StatusCode/100 == 2; whole != (n == len(text)) {
		a.fail("answered %+v, %v", resp, err)
	}
}

// goes is the end of a connection: is gone, or is sent away with a code.
func (a *realAgent) goes(how, more string) {
	a.t.Helper()
	if how == "gone" {
		a.peer.Settle()
		a.peer.Cut()
		const connected = "SELECT count(*) FROM agents WHERE agent_id = $1 AND disconnected_at IS NULL"
		servertest.Await(a.t, a.line, func() bool { return a.h.Count(a.t, connected, a.id) == 0 }, nil)
	} else if code, reason := a.peer.Ending(); "away "+strconv.Itoa(code) != more {
		a.fail("the connection ended with %d %s", code, reason)
	}
	a.peer = nil
}

func (a *realAgent) gets(name string) {
	a.t.Helper()
	raw := a.hears("job.dispatch", "")
	m, err := wire.DecodeFromServer(raw)
	d, ok := m.(wire.JobDispatch)
	if err != nil || !ok {
		a.fail("%v: %s", err, raw)
	}
	_, got, _ := strings.Cut(jobKey(d.JobConfig), "/")
	if got, _, _ = strings.Cut(strings.ReplaceAll(got, " ", ""), "{"); got != name {
		a.fail("got %s", got)
	}
	if len(a.holds) > 0 {
		a.fail("it was given another job while it has one")
	}
	a.jobs[name], a.holds[d.JobID] = d, true
}

// ends reports the end of a job as agents do, with what follows on it.
func (a *realAgent) ends(d wire.JobDispatch, how string) {
	a.t.Helper()
	state, data, _ := strings.Cut(how, " ")
	if data == "" {
		data = "{}"
	}
	delete(a.holds, d.JobID)
	a.report(d, fmt.Sprintf(`{"type":"job.status","state":%q,"data":%s}`, state, data))
	a.report(d, `{"type":"run.event","eventType":"agent.teardown","timestampMs":1.5,"sourceService":"agent","durationMs":null}`)
	a.status()
}

func (a *realAgent) status() {
	if a.peer != nil {
		a.peer.Send(wire.AgentStatus{MessageID: uuid.NewString(), AgentID: a.id, ActiveJobs: len(a.holds)})
	}
}

// report sends a frame that nobody answers, which is lost without a connection, and may come twice.
func (a *realAgent) report(d wire.JobDispatch, frame string) {
	a.t.Helper()
	if a.peer == nil {
		return
	}
	raw := a.frame(d, frame)
	a.peer.SendRaw(raw)
	if a.twice {
		a.peer.SendRaw(raw)
	}
}

func (a *realAgent) send(d wire.JobDispatch, frame string) {
	a.t.Helper()
	a.peer.SendRaw(a.frame(d, frame))
}

// frame adds what every frame about a job has.
func (a *realAgent) frame(d wire.JobDispatch, frame string) []byte {
	a.t.Helper()
	if d.JobID == "" {
		a.fail("it never got the job")
	}
	return fmt.Appendf(nil, `{"messageId":%q,"runId":%q,"jobId":%q,"timestamp":1.5,%s`, uuid.NewString(), d.RunID, d.JobID, strings.TrimPrefix(frame, "{"))
}

// hears takes the next frame and requires that an agent of this kind can take it.
func (a *realAgent) hears(kind, text string) []byte {
	a.t.Helper()
	for {
		raw := a.peer.NextRaw()
		if problem := unfit(raw); problem != "" {
			a.fail("no such agent takes %s: %s", raw, problem)
		}
		var m struct{ Type, UploadURL string }
		if err := json.Unmarshal(raw, &m); err == nil && m.Type == kind && strings.Contains(string(raw), text) {
			a.link, a.heard[string(raw)] = m.UploadURL, true
			return raw
		}
		if !a.again(raw) {
			a.fail("it heard %s", raw)
		}
	}
}

// again tells that a word of the engine has come once more. One that is on its way when its agent comes back is said anew then:
// an agent may be told twice, and never not at all.
func (a *realAgent) again(raw []byte) bool {
	m, err := wire.DecodeFromServer(raw)
	if err != nil {
		return false
	}
	switch m.(type) {
	case wire.JobCancel, wire.ConcurrencyAck, wire.ApprovalResolved:
		return a.heard[string(raw)]
	}
	return false
}

// required are the members without which the recorded agents drop a frame, or do nothing with it.
var required = map[string]string{
	"auth.success": "connectionId", "register.ack": "agentId labels scalerManaged", "job.cancel": "messageId runId jobId reason",
	"job.dispatch":           "messageId runId jobId repoUrl ref sha lockFileUrl jobConfig timestamp orgId repoId",
	"job.concurrency.ack":    "requestId action",
	"step.approval-resolved": "requestId runId jobId stepIndex outcome", "cache.user.restore.response": "requestId hit",
	"cache.user.save.response": "requestId skip", "cache.upload.response": "requestId uploadUrl",
	"event.emit.response": "requestId", "agent.api.response": "requestId",
}

// unfit says what the recorded agents would not take of a frame, "" when they take it.
func unfit(raw []byte) string {
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return err.Error()
	}
	kind, _ := m["type"].(string)
	members, known := required[kind]
	if !known {
		return "they do not know the type"
	}
	for name := range strings.FieldsSeq(members) {
		if m[name] == nil {
			return "they need " + name
		}
	}
	if m["features"] != nil || m["action"] == wire.ConcurrencyWait {
		return "they cannot do that"
	}
	delete(m, "jobConfig") // it is opaque to their schema, and the sender's payload is in it
	return null(m)
}

// null finds a member that is null, which their schema takes nowhere.
func null(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		for name, member := range v {
			if problem := null(member); problem != "" {
				return name + " is " + problem
			}
		}
	case []any:
		for _, member := range v {
			if problem := null(member); problem != "" {
				return problem
			}
		}
	}
	return ""
}
