package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/servertest"
)

// A player repeats a recording frame by frame, which needs a server that does what the recorded one did. Actors play the
// same agents against a server that does better: each job that it dispatches is answered with what a recorded agent said
// of that job, in that order, whenever and to whichever agent it comes. A job that the recorded server never dispatched
// is simply done.

// action is one thing that a recorded agent does with a job: it sends a frame, or waits for the answer of that kind.
type action struct {
	send  []byte
	await string
	then  []event // what happened in the recording right after
}

// event is what happens beside the frames of a job.
type event struct {
	push  string // a branch that is pushed to
	enter int    // a connection on which an agent registers
	leave int    // a connection whose agent leaves
}

// script is what a recorded agent did with one dispatch.
type script struct {
	runID, jobID string
	actions      []*action
	again        bool // the recorded server gave the job out once more, which is not part of the script
}

// stage is a recording taken apart.
type stage struct {
	scripts  map[string][]*script // by job key, in order
	greeting map[int][]byte       // the registration of each connection
	opening  []event              // before the first job
}

// jobKey tells the jobs of a recording apart.
func jobKey(config []byte) string {
	var c struct {
		WorkflowName, Name, TargetJobName string
		InitOnly, BuildOnly, DynamicJobFn bool
		Source                            json.RawMessage
	}
	if json.Unmarshal(config, &c) != nil {
		return ""
	}
	kind := c.Name
	switch {
	case c.InitOnly:
		kind = "init of " + c.TargetJobName
	case c.BuildOnly:
		kind = "build"
	case c.DynamicJobFn:
		kind = "generator " + string(c.Source)
	}
	return c.WorkflowName + "/" + kind
}

// director takes a recording apart, line by line.
type director struct {
	*stage
	byJob   map[string]*script // recorded job id → its latest dispatch
	asked   map[string]string  // message or request id → recorded job id
	runs    map[string]bool
	entered map[string]bool // agents
	last    *action
}

func direct(t *testing.T, lines []line) *stage {
	d := &director{stage: &stage{scripts: map[string][]*script{}, greeting: map[int][]byte{}},
		byJob: map[string]*script{}, asked: map[string]string{}, runs: map[string]bool{}, entered: map[string]bool{}}
	for _, l := range lines {
		switch l.Dir {
		case "a2o":
			d.said(l)
		case "o2a":
			d.heard(t, l)
		default:
			if l.Event == "agent-close" && l.Code == 1000 {
				d.note(event{leave: l.Conn})
			}
		}
	}
	return d.stage
}

func (d *director) note(e event) {
	if d.last == nil {
		d.opening = append(d.opening, e)
		return
	}
	d.last.then = append(d.last.then, e)
}

// members are what the director reads of any frame.
type members struct {
	Type, MessageID, RequestID, RunID, JobID, AgentID, Ref, State string
	JobConfig                                                     json.RawMessage
}

func (d *director) said(l line) {
	var m members
	if json.Unmarshal(l.Msg, &m) != nil {
		return
	}
	if m.Type == "agent.register" && !d.entered[m.AgentID] {
		d.entered[m.AgentID] = true
		d.greeting[l.Conn] = l.Msg
		d.note(event{enter: l.Conn})
	}
	s := d.byJob[m.JobID]
	if s == nil && m.Type == "agent.api.request" { // it names its job nowhere
		for _, s = range d.byJob {
			break
		}
	}
	if s == nil || s.again || m.Type == "agent.register" {
		return
	}
	for _, id := range []string{m.MessageID, m.RequestID} {
		d.asked[id] = s.jobID
	}
	d.last = &action{send: l.Msg}
	s.actions = append(s.actions, d.last)
}

func (d *director) heard(t *testing.T, l line) {
	var m members
	if err := json.Unmarshal(l.Msg, &m); err != nil {
		t.Fatal(err)
	}
	if m.Type == "job.dispatch" {
		if !d.runs[m.RunID] {
			d.runs[m.RunID] = true
			d.note(event{push: m.Ref})
		}
		if s := d.byJob[m.JobID]; s != nil {
			s.again = true
			return
		}
		s := &script{runID: m.RunID, jobID: m.JobID}
		d.byJob[m.JobID] = s
		key := jobKey(m.JobConfig)
		d.scripts[key] = append(d.scripts[key], s)
		return
	}
	if id := d.asked[m.RequestID]; m.RequestID != "" && id != "" {
		s := d.byJob[id]
		s.actions = append(s.actions, &action{await: m.Type})
	}
}

// theatre plays a stage against a server.
type theatre struct {
	*stage
	t     *testing.T
	ctx   context.Context
	home  *servertest.Home
	repo  string
	sha   string
	mu    sync.Mutex
	peers map[int]*actor // by connection
	doing sync.WaitGroup
	taken map[string]int  // how many scripts of a key were used
	seen  map[string]bool // jobs that came before
}

// actor is one agent of the recording.
type actor struct {
	*servertest.Peer
	performs sync.Mutex // held from a dispatch to the end of what the agent does with it
	gone     bool       // it has left; what still came for it is given to another, since it answers no more
}

// happen lets events follow on what an actor did, who is nil before the play.
func (th *theatre) happen(events []event, by *actor) {
	for _, e := range events {
		switch {
		case e.push != "":
			th.home.Push(th.t, th.repo, e.push, th.sha)
		case e.enter != 0:
			th.enter(e.enter)
		case e.leave != 0:
			th.leave(e.leave, by)
		}
	}
}

func (th *theatre) enter(conn int) {
	peer := &actor{Peer: th.home.Dial(th.t)}
	th.mu.Lock()
	th.peers[conn] = peer
	th.mu.Unlock()
	peer.Send(wire.AuthRequest{Token: th.home.Token, ProtocolVersion: 1})
	peer.SendRaw(th.greeting[conn])
	for registered := false; !registered; { // what is planned depends on which agents are there
		m, ok := peer.Take(th.ctx)
		if !ok {
			return
		}
		_, registered = m.(wire.RegisterAck)
	}
	th.doing.Go(func() { th.act(peer) })
}

// leave lets an agent go only where another follows: what the recorded server never gave out has still to be done. The
// recorded agent had sent all it had to say by then, so it goes after the job that it is at.
func (th *theatre) leave(conn int, by *actor) {
	for other := range th.greeting {
		if other > conn {
			th.mu.Lock()
			peer := th.peers[conn]
			th.mu.Unlock()
			if peer != by {
				peer.performs.Lock()
				defer peer.performs.Unlock()
			}
			peer.gone = true
			peer.Leave()
			return
		}
	}
}

// act is one agent: a job at a time.
func (th *theatre) act(peer *actor) {
	for {
		m, ok := peer.Take(th.ctx)
		if !ok {
			return
		}
		if d, isDispatch := m.(wire.JobDispatch); isDispatch {
			th.perform(peer, d)
		}
	}
}

// perform plays what a recorded agent did with the job, and ends it where the recorded one did not come to that.
func (th *theatre) perform(peer *actor, d wire.JobDispatch) {
	peer.performs.Lock()
	defer peer.performs.Unlock()
	if peer.gone {
		return
	}
	s := th.cast(d)
	for _, a := range s.actions {
		if a.await != "" {
			if !th.await(peer, d, a) {
				return
			}
		} else {
			raw := bytes.ReplaceAll(a.send, []byte(s.jobID), []byte(d.JobID))
			peer.SendRaw(bytes.ReplaceAll(raw, []byte(s.runID), []byte(d.RunID)))
			th.happen(a.then, peer)
		}
	}
	if !s.says("job.reject") && !s.ends() {
		end := done(d).actions
		peer.SendRaw(end[len(end)-1].send)
	}
}

// cast finds what to play for a dispatch. A job that comes again, or that the recorded server never gave out, is done.
func (th *theatre) cast(d wire.JobDispatch) *script {
	th.mu.Lock()
	defer th.mu.Unlock()
	key := jobKey(d.JobConfig)
	n := th.taken[key]
	if th.seen[d.JobID] || n == len(th.scripts[key]) {
		return done(d)
	}
	th.seen[d.JobID] = true
	th.taken[key]++
	return th.scripts[key][n]
}

// ends tells that the recorded agent brought the job to its end.
func (s *script) ends() bool {
	return slices.ContainsFunc(s.actions, func(a *action) bool {
		var m members
		return json.Unmarshal(a.send, &m) == nil && m.Type == "job.status" && ci.JobStatus(m.State).Terminal()
	})
}

func (s *script) says(kind string) bool {
	return slices.ContainsFunc(s.actions, func(a *action) bool {
		var m members
		return json.Unmarshal(a.send, &m) == nil && m.Type == kind
	})
}

// done is a job that succeeds with its first step.
func done(d wire.JobDispatch) *script {
	s := &script{runID: d.RunID, jobID: d.JobID}
	for _, frame := range []string{
		`{"type":"job.ack"}`, `{"type":"job.status","state":"running"}`, `{"type":"step.status","stepIndex":0,"stepName":"s","state":"running"}`,
		`{"type":"step.status","stepIndex":0,"stepName":"s","state":"success"}`,
		`{"type":"job.status","state":"success","data":{"buildComplete":true}}`, // which means something of a build alone
	} {
		full := fmt.Sprintf(`%s,"messageId":%q,"runId":%q,"jobId":%q,"timestamp":1}`, strings.TrimSuffix(frame, "}"), uuid.NewString(), d.RunID, d.JobID)
		s.actions = append(s.actions, &action{send: []byte(full)})
	}
	return s
}

// await waits for an answer and does what an agent does with it. It reports whether the job goes on.
func (th *theatre) await(peer *actor, d wire.JobDispatch, a *action) bool {
	for {
		m, ok := peer.Take(th.ctx)
		if !ok {
			return false
		}
		switch m := m.(type) {
		case wire.JobDispatch:
			th.refuse(peer, d, m)
		case wire.JobCancel:
			return true // the script says what the recorded agent made of it
		case wire.ConcurrencyAck:
			if m.Action == wire.ConcurrencyWait {
				th.t.Errorf("an agent that cannot wait is told to: %+v", m)
			}
			if m.Action == wire.ConcurrencyCancel {
				peer.SendRaw([]byte(fmt.Sprintf(`{"type":"job.status","messageId":%q,"runId":%q,"jobId":%q,"state":"failed","timestamp":1,"data":{"error":"Cancelled by concurrency policy"}}`,
					uuid.NewString(), d.RunID, d.JobID)))
				return false
			}
		case wire.UserCacheSaveResponse:
			th.upload(m.UploadURL)
		case wire.CacheUploadResponse:
			th.upload(m.UploadURL)
		}
		if m.MessageType() == a.await {
			return true
		}
	}
}

// refuse answers a dispatch that comes while the actor has a job, as the recorded agents do, who run one at a time: unanswered,
// it would cost the connection. The job that it has must not come at all, since nothing that it says tells the one delivery
// from the other.
func (th *theatre) refuse(peer *actor, has, offered wire.JobDispatch) {
	if offered.JobID == has.JobID {
		th.t.Errorf("job %s is given out again to an agent that has not ended it", has.JobID)
	}
	peer.Send(wire.JobReject{MessageID: uuid.NewString(), RunID: offered.RunID, JobID: offered.JobID, Reason: wire.RejectBusy, Timestamp: 1})
}

func (th *theatre) upload(url string) {
	if url == "" {
		return
	}
	req, err := http.NewRequestWithContext(th.ctx, http.MethodPut, url, strings.NewReader("packed"))
	if err != nil {
		th.t.Error(err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		th.t.Errorf("upload: %v", err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		th.t.Errorf("upload: status %d", resp.StatusCode)
	}
}

// play acts a recording until the server has nothing to do any more.
func (th *theatre) play(runs int) {
	ctx, cancel := context.WithCancel(th.t.Context())
	th.ctx = ctx
	th.happen(th.opening, nil)
	th.home.AwaitRuns(th.t, runs)
	cancel()
	th.doing.Wait()
}
