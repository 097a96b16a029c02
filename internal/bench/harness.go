package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/rig"
)

// trivial is the measured workflow: one job of one step that does next to nothing.
const trivial = `import { job, push, step, workflow } from '@kici-dev/sdk';

export default workflow('bench', {
  on: push({ branches: 'main' }),
  jobs: [job('one', { runsOn: 'linux', steps: [step('go', async ({ log }) => { log.info('done'); })] })],
});
`

// bed is the rig of a measure, with stub agents beside its real ones.
type bed struct {
	*rig.Rig
	stubs []*Stub
	stop  context.CancelFunc // of the stubs
	ended chan error         // one for each stub
}

// newBed starts a server on an empty data folder and makes the repository and the source. The source's limit of
// deliveries is out of the way: what is measured is the server.
func newBed(ctx context.Context, o Options) (*bed, error) { return newBedFor(ctx, o, trivial) }

// newBedFor is newBed with another workflow.
func newBedFor(ctx context.Context, o Options, workflow string) (*bed, error) {
	r, err := rig.New(ctx, rig.Options{Name: "bench", Repo: "bench/app", Workflow: []byte(workflow), Environ: o.environ(), RateLimit: 100_000})
	if err != nil {
		return nil, err
	}
	return &bed{Rig: r, ended: make(chan error, max(o.Agents, 1))}, nil
}

// environ is the measured server's environment, on top of the least.
func (o Options) environ() []string {
	environ := []string{"KICI_LOG_LEVEL=warn"}
	if o.Postgres != "" {
		environ = append(environ, "KICI_DATABASE_URL="+o.Postgres)
	}
	return environ
}

// close ends everything and removes the folder.
func (b *bed) close() {
	b.endStubs()
	b.Rig.Close()
}

// endStubs disconnects the stub agents.
func (b *bed) endStubs() {
	if b.stop != nil {
		b.stop()
	}
	for range b.stubs {
		<-b.ended
	}
	b.stubs = nil
}

// startAgents starts real or stub agents and waits until the server knows them.
func (b *bed) startAgents(ctx context.Context, o Options, dispatched func(jobID string, at time.Time)) error {
	if o.Stub {
		if err := b.startStubs(ctx, o, dispatched); err != nil {
			return err
		}
		return b.AwaitAgents(ctx, o.Agents)
	}
	for i := range o.Agents {
		if err := b.StartAgent(fmt.Sprint("agent-", i)); err != nil {
			return err
		}
	}
	return b.AwaitAgents(ctx, o.Agents)
}

func (b *bed) startStubs(ctx context.Context, o Options, dispatched func(string, time.Time)) error {
	ctx, b.stop = context.WithCancel(ctx)
	for i := range o.Agents {
		s := b.stub(i)
		s.Delay, s.Dispatched = o.Delay, dispatched
		if err := s.Connect(ctx); err != nil {
			return err
		}
		b.stubs = append(b.stubs, s)
		go func() { b.ended <- s.Serve(ctx) }()
	}
	return nil
}

// stub is one that has not connected yet.
func (b *bed) stub(i int) *Stub {
	return &Stub{ID: fmt.Sprint("stub-", i), URL: b.Server.AgentURL(), Token: b.AgentToken(), Labels: []string{"linux"}, Slots: 1}
}

// wide is a workflow of 250 jobs for each of the names a to d as far as count says, each of one step.
func wide(count int) string {
	const head = "import { job, push, step, workflow } from '@kici-dev/sdk';\n\n" +
		"const values = Array.from({ length: 250 }, (_, i) => String(i));\n" +
		"const make = (name) => job(name, { runsOn: 'linux', matrix: values, steps: [step('go', async ({ log }) => { log.info('done'); })] });\n" +
		"export default workflow('bench', { on: push({ branches: 'main' }), jobs: ["
	names := []string{"make('a')", "make('b')", "make('c')", "make('d')"}
	return head + strings.Join(names[:count], ", ") + "] });\n"
}

// wideJobs is how many jobs each part of a wide workflow has.
const wideJobs = 250

// runs lists all runs of the measure, newest first.
func (b *bed) runs(ctx context.Context) ([]adminwire.Run, error) {
	const page = 100
	var all []adminwire.Run
	for {
		list, err := b.API.Runs(ctx, client.RunQuery{Limit: page, Offset: len(all)})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Runs...)
		if len(list.Runs) < page {
			return all, nil
		}
	}
}

// count asks how many runs are in one of the states.
func (b *bed) count(ctx context.Context, statuses string) (int, error) {
	list, err := b.API.Runs(ctx, client.RunQuery{Status: statuses, Limit: 1})
	return list.Total, err
}
