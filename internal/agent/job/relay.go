package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"kici/internal/agent/ledger"
	"kici/internal/agent/runner"
	"kici/internal/core/wire"
)

// How long the server has for an answer, by the kind of question.
const (
	eventLimit    = 6 * time.Second // the runner gives up after 5 and makes a receipt of its own
	apiLimit      = 15 * time.Second
	storeLimit    = 30 * time.Second
	artifactLimit = 2 * time.Minute // a step fails for its artifact, so a server that restarts is awaited
	approvalLimit = 7 * 24 * time.Hour
)

// relay passes a question of the runner on to the server and brings the answer back.
func (j *Job) relay(r runner.Request) {
	select {
	case j.requests <- struct{}{}:
	default:
		j.respond(r, runner.Response{Error: "too many requests at a time"})
		return
	}
	release := func() { <-j.requests }
	id := uuid.NewString()
	m, limit, err := j.translate(id, r)
	if err == nil {
		err = sendable(m)
	}
	switch {
	case err != nil:
		j.respond(r, runner.Response{Error: err.Error()})
		release()
		return
	case limit == 0: // the word that something is stored, of which the step is told that at once
		j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepAcked, Job: j.Ref})
		j.respond(r, runner.Response{})
		release()
		return
	}
	timer := time.AfterFunc(limit, func() {
		if q, ok := j.shop.Questions.Take(id); ok {
			q.Answer(nil, ledger.ErrNoAnswer)
		}
	})
	lasting := outlives(r)
	j.shop.Questions.Add(id, &ledger.Question{Lasting: lasting, Answer: func(answer wire.Message, err error) {
		timer.Stop()
		j.shop.Ledger.Answered(id)
		j.respond(r, j.back(r, answer, err))
		release()
	}})
	keep := ledger.KeepNot
	if lasting {
		keep = ledger.KeepAnswered
	}
	if !j.shop.Ledger.Post(m, ledger.Entry{Keep: keep, Job: j.Ref}) {
		if q, ok := j.shop.Questions.Take(id); ok {
			q.Answer(nil, ledger.ErrConnectionLost)
		}
	}
}

// outlives tells which questions are put again to the next connection: a step fails when nothing comes of them.
func outlives(r runner.Request) bool {
	switch r.Type {
	case runner.TypeApprovalRequest, runner.TypeArtifact, runner.TypeProvenance:
		return true
	}
	return r.Type == runner.TypeAPIRequest && r.Method == methodToken
}

// methodToken is the call for an identity token of the job.
const methodToken = "oidc.token.request"

// translate makes the frame for a question. A limit of 0 says that the frame has no answer.
func (j *Job) translate(id string, r runner.Request) (wire.Message, time.Duration, error) {
	switch r.Type {
	case runner.TypeEventEmit:
		m := wire.EventEmit{JobID: j.Ref.ID, RequestID: id, EventName: r.EventName, Payload: r.Payload}
		if len(r.Target) > 0 {
			var t wire.EventTarget
			if err := json.Unmarshal(r.Target, &t); err != nil {
				return nil, 0, errors.New("the target of the event is malformed")
			}
			m.Target = &t
		}
		return m, eventLimit, nil
	case runner.TypeAPIRequest:
		if err := j.shop.allowed(r.Method); err != nil {
			return nil, 0, err
		}
		return wire.APIRequest{RequestID: id, Method: r.Method, Params: r.Params}, apiLimit, nil
	case runner.TypeCacheRequest:
		switch r.Op {
		case "restore":
			return wire.UserCacheRestoreRequest{MessageID: id, JobID: j.Ref.ID, Key: r.Key, RestoreKeys: r.RestoreKeys}, storeLimit, nil
		case "beginSave":
			return wire.UserCacheSaveRequest{MessageID: id, JobID: j.Ref.ID, Key: r.Key}, storeLimit, nil
		case "completeSave":
			return wire.UserCacheSaveComplete{MessageID: id, JobID: j.Ref.ID, Key: r.Key, TarHash: r.TarHash, SizeBytes: r.SizeBytes}, 0, nil
		}
	case runner.TypeProvenance:
		switch r.Op {
		case "requestUploadUrl":
			return wire.ProvenanceUploadRequest{MessageID: id, JobID: j.Ref.ID, SubjectDigest: r.SubjectDigest}, storeLimit, nil
		case "complete":
			return wire.ProvenanceUploadComplete{MessageID: id, JobID: j.Ref.ID, SubjectName: r.SubjectName,
				SubjectDigest: r.SubjectDigest, MediaType: r.MediaType}, 0, nil
		}
	case runner.TypeArtifact:
		return j.artifactFrame(id, r)
	case runner.TypeApprovalRequest:
		m := wire.ApprovalRequest{MessageID: id, RunID: j.Ref.Run, JobID: j.Ref.ID, StepName: r.StepName, Reason: r.Reason,
			TimeoutSeconds: int(math.Ceil(r.TimeoutSeconds))} // the server counts whole ones
		if r.StepIndex != nil {
			m.StepIndex = *r.StepIndex
		}
		if err := json.Unmarshal(orJSON(r.Clauses, "[]"), &m.Clauses); err != nil {
			return nil, 0, errors.New("the clauses of the approval are malformed")
		}
		if len(r.Payload) > 0 {
			if err := json.Unmarshal(r.Payload, &m.Payload); err != nil {
				return nil, 0, errors.New("the payload of the approval is malformed")
			}
		}
		return m, approvalLimit, nil
	}
	return nil, 0, errors.New("unknown request")
}

// sendable refuses what no server takes: it would end the connection, and for a question that is sent again every one.
func sendable(m wire.Message) error {
	if size := encodedSize(m); size > wire.MaxAgentFrame {
		return fmt.Errorf("the request has %d bytes, more than the %d that can be sent", size, wire.MaxAgentFrame)
	}
	return nil
}

// artifactFrame asks for the place of an artifact, or says what was put there. Only our own servers know the frames; another
// would end the connection over them.
func (j *Job) artifactFrame(id string, r runner.Request) (wire.Message, time.Duration, error) {
	if !j.shop.Has(wire.FeatureArtifacts) {
		return nil, 0, errors.New("this server keeps no artifacts")
	}
	if r.Op == "commit" {
		return wire.ArtifactCommitRequest{MessageID: id, JobID: j.Ref.ID, UploadID: r.UploadID, SHA256: r.SHA256, SizeBytes: r.SizeBytes}, artifactLimit, nil
	}
	m := wire.ArtifactUploadRequest{MessageID: id, JobID: j.Ref.ID, Name: r.Name}
	if r.SizeBytes >= 0 {
		m.SizeBytes = &r.SizeBytes
	}
	return m, artifactLimit, nil
}

func orJSON(raw json.RawMessage, fallback string) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage(fallback)
	}
	return raw
}

// back makes the runner's answer of the server's.
func (j *Job) back(r runner.Request, answer wire.Message, err error) runner.Response {
	if err != nil {
		return runner.Response{Error: err.Error()}
	}
	switch m := answer.(type) {
	case wire.EventEmitResponse:
		return runner.Response{DeliveryID: m.DeliveryID, Error: m.Error}
	case wire.APIResponse:
		if m.Error == "" {
			j.learn(r, m.Result)
		}
		return runner.Response{Result: m.Result, Error: m.Error}
	case wire.UserCacheRestoreResponse:
		return runner.Response{Hit: m.Hit, MatchedKey: m.MatchedKey, DownloadURL: j.shop.reach(m.DownloadURL), TarHash: m.TarHash}
	case wire.UserCacheSaveResponse:
		return runner.Response{Skip: m.Skip, UploadURL: j.shop.reach(m.UploadURL)}
	case wire.ProvenanceUploadResponse:
		return runner.Response{UploadURL: j.shop.reach(m.UploadURL)}
	case wire.ArtifactUploadResponse:
		return runner.Response{UploadID: m.UploadID, UploadURL: j.shop.reach(m.UploadURL), MaxBytes: m.MaxBytes, Error: m.Error}
	case wire.ArtifactCommitResponse:
		return runner.Response{Error: m.Error}
	case wire.ApprovalResolved:
		return runner.Response{Outcome: m.Outcome, Reason: m.Reason}
	}
	return runner.Response{Error: "the server gave an answer of another kind"}
}

// learn notes what the answer to an API call means for the agent itself.
func (j *Job) learn(r runner.Request, result json.RawMessage) {
	switch r.Method {
	case methodToken:
		var v struct{ Token string }
		if json.Unmarshal(result, &v) == nil && v.Token != "" {
			j.mask.Add(v.Token) // before a step can print it
		}
	case MethodRequestReboot:
		j.shop.Reboot(r.Params)
	case MethodCancelReboot:
		j.shop.KeepMachine()
	}
}

var responseTypes = map[string]string{
	runner.TypeEventEmit:       runner.TypeEventEmitResponse,
	runner.TypeAPIRequest:      runner.TypeAPIResponse,
	runner.TypeCacheRequest:    runner.TypeCacheResponse,
	runner.TypeProvenance:      runner.TypeProvenanceResponse,
	runner.TypeArtifact:        runner.TypeArtifactResponse,
	runner.TypeApprovalRequest: runner.TypeApprovalResolved,
}

// respond gives the runner its answer.
func (j *Job) respond(r runner.Request, answer runner.Response) {
	answer.Type, answer.RequestID = responseTypes[r.Type], r.RequestID
	j.tell(answer)
}

// tell puts a message for the runner into a queue: a runner that does not read must not hold up the connection. The
// queue holds more than a job may ask at a time, so it is full only when the runner has stopped reading for good.
func (j *Job) tell(m any) {
	select {
	case j.outbox <- m:
	default:
		j.log.Warn("a message to the runner is lost: it does not read")
	}
}

// feed sends the queue to the runner until the job ends, which also ends a sending that is stuck.
func (j *Job) feed(proc *runner.Process) {
	for {
		select {
		case m := <-j.outbox:
			if err := proc.Send(m); err != nil && j.ctx.Err() == nil {
				j.log.Debug("the runner did not take a message", "err", err)
			}
		case <-j.ctx.Done():
			return
		}
	}
}

// reportConcurrency asks for a slot of the job's concurrency group. The answer may be to wait; another follows then. The
// question is asked again on a new connection, and who waits may be told once more to wait: the runner hears that once.
func (j *Job) reportConcurrency(r runner.ConcurrencyReport) {
	id := uuid.NewString()
	var waits atomic.Bool
	j.shop.Questions.Add(id, &ledger.Question{Job: j.Ref, Lasting: true, Answer: func(answer wire.Message, err error) {
		ack := runner.ConcurrencyAck{Type: runner.TypeConcurrencyAck, Action: wire.ConcurrencyCancel, Reason: "no answer"}
		if err != nil {
			ack.Reason = err.Error()
		}
		if m, ok := answer.(wire.ConcurrencyAck); ok {
			ack.Action, ack.Reason = m.Action, m.Reason
		}
		switch {
		case ack.Action != wire.ConcurrencyWait:
			j.shop.Ledger.Answered(id)
		case waits.Swap(true):
			return
		}
		j.tell(ack)
	}})
	m := wire.ConcurrencyReport{MessageID: id, RunID: j.Ref.Run, JobID: j.Ref.ID, Group: r.Group}
	if err := sendable(m); err != nil {
		if q, ok := j.shop.Questions.Take(id); ok {
			q.Answer(nil, err)
		}
		return
	}
	j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepAnswered, Job: j.Ref})
}
