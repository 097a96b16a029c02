package chaos

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"kici/internal/client"
	"kici/internal/kit/service"
	"kici/internal/proc"
	"kici/internal/rig"
)

// system is what is tormented: servers, agents, and the lines between them.
type system struct {
	*rig.Rig
	witness *witness
	nodes   []*node
	agents  []*unit
	lines   []*link // one for each agent, one for the senders, and one for the servers to a shared database
	senders *link   // among them
	shared  *link   // to the database, nil without a shared one; among them once everything is up

	mu      sync.Mutex
	crashes []string
}

// node is a server with its present address.
type node struct {
	unit
	folder string

	address sync.Mutex
	server  *proc.Server // the present process, or the last
}

func (n *node) current() *proc.Server {
	n.address.Lock()
	defer n.address.Unlock()
	return n.server
}

func (n *node) set(s *proc.Server) *proc.Process {
	n.address.Lock()
	defer n.address.Unlock()
	n.server = s
	return s.Process
}

// The times of the tormented servers are short, so that what waits for a time-out is seen within a short run: an agent
// may be gone for four seconds, and has two for its answer to a dispatch.
var environ = []string{"KICI_AGENT_MAX_RECONNECT_DELAY_MS=2000", "KICI_DISPATCH_ACK_TIMEOUT_MS=2000", "KICI_LOG_LEVEL=debug"}

// startTries is how often a server is started that does not come up: its database may be out of reach in that moment, and
// whoever keeps servers running starts them again.
const startTries = 5

// build starts everything.
func build(ctx context.Context, o Options) (_ *system, err error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, by its documentation
	env := append([]string{"KICI_SECRET_KEY=" + hex.EncodeToString(key)}, environ...)
	s := &system{witness: &witness{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if o.Postgres != "" {
		url, err := s.share(o.Postgres)
		if err != nil {
			return nil, err
		}
		env = append(env, "KICI_DATABASE_URL="+url)
	}
	s.Rig, err = rig.New(ctx, rig.Options{Name: "chaos", Repo: "chaos/app", Workflow: workflows, Environ: env,
		AdminToken: rand.Text() + rand.Text(), Logs: o.Logs, RateLimit: 100_000})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.script(), script, 0o600); err != nil {
		return nil, err
	}
	if err := s.startNodes(ctx, o.Servers); err != nil {
		return nil, err
	}
	if err := s.startAgents(ctx, o.Agents); err != nil {
		return nil, err
	}
	if s.shared != nil {
		s.lines = append(s.lines, s.shared)
	}
	return s, s.AwaitAgents(ctx, o.Agents)
}

// share opens the line to a shared database and gives the URL by which servers reach it.
func (s *system) share(postgres string) (string, error) {
	u, err := url.Parse(postgres)
	if err != nil || u.Port() == "" {
		return "", errors.New("the URL of the database must name host and port") // its error would repeat the password
	}
	address := u.Host
	if s.shared, err = openLink(func() []string { return []string{address} }, nil); err != nil {
		return "", err
	}
	u.Host = s.shared.address()
	return u.String(), nil
}

func (s *system) script() string { return filepath.Join(s.Base, "work.sh") }
func (s *system) ledger() string { return filepath.Join(s.Base, "ledger") }

func (s *system) startNodes(ctx context.Context, count int) error {
	for i := range count {
		n := &node{folder: fmt.Sprint("server-", i)}
		if i == 0 {
			n.folder = filepath.Base(s.Server.Data)
		}
		n.unit = unit{name: n.folder, crash: s.crashed, tries: startTries, start: func(ctx context.Context) (*proc.Process, error) {
			server, err := s.StartNode(ctx, n.folder)
			if err != nil {
				return nil, err
			}
			return n.set(server), nil
		}}
		s.nodes = append(s.nodes, n)
		if i == 0 {
			n.adopt(n.set(s.Server))
			continue
		}
		if err := n.up(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) startAgents(ctx context.Context, count int) error {
	for i := range count + 1 {
		l, err := openLink(s.servers, s.witness)
		if err != nil {
			return err
		}
		s.lines = append(s.lines, l)
		if i == count {
			s.senders = l
			return nil
		}
		id := fmt.Sprint("agent-", i)
		a := &unit{name: id, crash: s.crashed, start: func(context.Context) (*proc.Process, error) {
			return s.LaunchAgent(id, "ws://"+l.address()+"/ws")
		}}
		s.agents = append(s.agents, a)
		if err := a.up(ctx); err != nil {
			return err
		}
	}
	return nil
}

// servers are the addresses of all servers, one that is taken at random first, as behind a balancer.
func (s *system) servers() []string {
	first := mathrand.IntN(len(s.nodes))
	var out []string
	for i := range s.nodes {
		n := s.nodes[(first+i)%len(s.nodes)]
		out = append(out, strings.TrimPrefix(n.current().URL, "http://"))
	}
	return out
}

// anyAPI is the administration of some server, which may be down.
func (s *system) anyAPI() (*client.Client, error) {
	return s.Connect(s.nodes[mathrand.IntN(len(s.nodes))].current())
}

func (s *system) crashed(words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashes = append(s.crashes, words)
}

// heal undoes whatever is wrong: lines move, processes run.
func (s *system) heal(ctx context.Context) error {
	var err error
	for _, l := range s.lines {
		l.calm()
		l.cut() // what was lost on it is sent again on the next
	}
	for _, n := range s.nodes {
		_ = n.with((*proc.Process).Resume) // it may have ended just now
		err = errors.Join(err, n.up(ctx))
		s.resume(ctx, n)
	}
	for _, a := range s.agents {
		_ = a.with((*proc.Process).Resume)
		err = errors.Join(err, a.up(ctx))
	}
	return err
}

// resumeTries is how often a server is asked to take work again: its line to the database may have been cut just now.
const resumeTries = 20

func (s *system) resume(ctx context.Context, n *node) {
	for range resumeTries {
		if s.drain(ctx, n, false) || !service.Sleep(ctx, watchEvery) {
			return
		}
	}
}

// rest ends agents and servers in peace and leaves what they have written.
func (s *system) rest() {
	var all sync.WaitGroup
	for _, a := range s.agents {
		all.Go(a.end)
	}
	all.Wait()
	for _, n := range s.nodes {
		all.Go(n.end)
	}
	all.Wait()
	for _, l := range s.lines {
		l.close()
	}
	if s.shared != nil {
		s.shared.close()
	}
}

// close ends everything and removes the folder.
func (s *system) close() {
	s.rest()
	if s.Rig != nil {
		s.Rig.Close()
	}
}
