package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"kici/internal/core/wire"
	"kici/internal/server/servertest"
	"kici/internal/vectors"
)

// line is one line of recorded traffic between an agent and the server that it was recorded with.
type line struct {
	Conn  int             `json:"conn"`
	Dir   string          `json:"dir"`   // a2o, o2a or ctl
	Event string          `json:"event"` // of ctl: open, agent-close, orch-close, cut
	Code  int             `json:"code"`
	Msg   json.RawMessage `json:"msg"`
}

// loadRecording reads a recording by its name; one that is not there skips the test.
func loadRecording(t *testing.T, name string) (lines []line) {
	t.Helper()
	raw, err := os.ReadFile(vectors.Samples("wire", name+".jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no such recording")
	}
	if err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(bytes.NewReader(raw))
	scan.Buffer(nil, wire.MaxFrame)
	for scan.Scan() {
		var l line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// player is the agents' side of a recording against a real server. What the recorded agents sent is sent, with the ids
// of this server in the place of the recorded ones; what the recorded server sent is waited for, by its kind.
type player struct {
	t     *testing.T
	home  *servertest.Home
	repo  string
	sha   string
	peers map[int]*servertest.Peer
	ids   map[string]string // recorded run and job ids → ours
	runs  []string          // ours, in the order of their first dispatch
	// kinds is what the server sent on each connection, wanted what the recorded one did.
	kinds, wanted map[int][]string
	dispatches    []dispatchPair
}

// dispatchPair is a recorded dispatch and the one that this server sent in its place.
type dispatchPair struct{ recorded, got wire.JobDispatch }

func newPlayer(t *testing.T, h *servertest.Home, repo, sha string) *player {
	return &player{t: t, home: h, repo: repo, sha: sha, peers: map[int]*servertest.Peer{}, ids: map[string]string{},
		kinds: map[int][]string{}, wanted: map[int][]string{}}
}

// play goes through the lines in their order. The pauses of the recording are left out.
func (p *player) play(lines []line) {
	p.t.Helper()
	for _, l := range lines {
		switch {
		case l.Event == "open":
			p.peers[l.Conn] = p.home.Dial(p.t)
		case l.Event == "agent-close":
			p.leave(l)
		case l.Dir == "a2o":
			p.peers[l.Conn].SendRaw(p.ours(l.Msg))
		case l.Dir == "o2a":
			p.expect(l)
		}
	}
	for conn, peer := range p.peers {
		p.note(conn, peer.Rest()...)
	}
}

// leave ends a connection as its agent did, once the server has applied what came before: in the recording that was a
// matter of milliseconds, and the close followed after seconds.
func (p *player) leave(l line) {
	p.t.Helper()
	peer := p.peers[l.Conn]
	peer.Settle()
	if l.Code != 1000 {
		peer.Cut()
		return
	}
	peer.Leave()
	if code, reason := peer.Ending(); code != l.Code {
		p.t.Errorf("connection %d ended with %d %s, the recorded one with %d", l.Conn, code, reason, l.Code)
	}
}

// ours puts this server's ids and token into a recorded frame.
func (p *player) ours(raw []byte) []byte {
	raw = bytes.ReplaceAll(raw, []byte(`"token":"REDACTED"`), []byte(`"token":"`+p.home.Token+`"`))
	for recorded, ours := range p.ids {
		raw = bytes.ReplaceAll(raw, []byte(recorded), []byte(ours))
	}
	return raw
}

// expect waits for the counterpart of a frame of the recorded server.
func (p *player) expect(l line) {
	p.t.Helper()
	want, err := wire.DecodeFromServer(l.Msg)
	if err != nil {
		p.t.Fatal(err)
	}
	dispatch, isDispatch := want.(wire.JobDispatch)
	if isDispatch && p.ids[dispatch.RunID] == "" {
		p.home.Push(p.t, p.repo, dispatch.Ref, p.sha) // the recorded run was started so, a moment before
	}
	p.wanted[l.Conn] = append(p.wanted[l.Conn], want.MessageType())
	got := p.peers[l.Conn].Next()
	p.note(l.Conn, got)
	if got.MessageType() != want.MessageType() {
		p.t.Fatalf("connection %d: got %s (%+v), the recorded server sent %s", l.Conn, got.MessageType(), got, want.MessageType())
	}
	if isDispatch {
		p.match(dispatch, got.(wire.JobDispatch))
	}
}

func (p *player) note(conn int, messages ...wire.Message) {
	for _, m := range messages {
		p.kinds[conn] = append(p.kinds[conn], m.MessageType())
	}
}

// match learns which of our jobs stands for a recorded one.
func (p *player) match(recorded, got wire.JobDispatch) {
	p.t.Helper()
	if a, b := jobNames(p.t, recorded), jobNames(p.t, got); a != b {
		p.t.Fatalf("got the dispatch of %s, the recorded server sent %s", b, a)
	}
	if p.ids[recorded.RunID] == "" {
		p.runs = append(p.runs, got.RunID)
	}
	p.ids[recorded.RunID], p.ids[recorded.JobID] = got.RunID, got.JobID
	p.dispatches = append(p.dispatches, dispatchPair{recorded, got})
}

func jobNames(t *testing.T, d wire.JobDispatch) string {
	t.Helper()
	var c struct{ WorkflowName, Name string }
	if err := json.Unmarshal(d.JobConfig, &c); err != nil {
		t.Fatal(err)
	}
	return c.WorkflowName + "/" + c.Name
}

// toldStep is what a recording's agent said of a step last.
type toldStep struct {
	Name, Status, Type, Error string
	ExitCode                  int64
}

// toldJob is what a recording's agent said of a job.
type toldJob struct {
	Status  string
	Outputs string
	Steps   map[int]toldStep
	Logs    map[int][]string
}

// told reads from a recording what a server must have stored of it, by recorded job id.
func told(t *testing.T, lines []line) map[string]*toldJob {
	t.Helper()
	jobs := map[string]*toldJob{}
	of := func(id string) *toldJob {
		if jobs[id] == nil {
			jobs[id] = &toldJob{Steps: map[int]toldStep{}, Logs: map[int][]string{}}
		}
		return jobs[id]
	}
	for _, l := range lines {
		if l.Dir != "a2o" {
			continue
		}
		m, err := wire.DecodeFromAgent(l.Msg)
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case wire.JobStatus:
			tellJob(of(m.JobID), m)
		case wire.StepStatus:
			of(m.JobID).Steps[m.StepIndex] = tellStep(m)
		case wire.LogChunk:
			j := of(m.JobID)
			j.Logs[m.StepIndex] = append(j.Logs[m.StepIndex], m.Lines...)
		}
	}
	return jobs
}

func tellJob(j *toldJob, m wire.JobStatus) {
	j.Status = string(m.State)
	if !m.State.Terminal() {
		return
	}
	data := wire.ParseJobData(m.Data)
	j.Outputs = string(data.Outputs)
	for i, s := range data.StepResults { // the terminal report wins
		step := j.Steps[i]
		step.Name, step.Status = s.Name, string(s.Status)
		j.Steps[i] = step
	}
}

func tellStep(m wire.StepStatus) toldStep {
	data := wire.ParseStepData(m.Data)
	s := toldStep{Name: m.StepName, Status: string(m.State), Type: data.StepType, Error: strings.TrimSpace(data.Error)}
	if data.ExitCode != nil {
		s.ExitCode = *data.ExitCode
	}
	return s
}
