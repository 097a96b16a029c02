package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"kici/internal/core/wire"
)

// Action is what the killer does.
type Action string

// What the killer does to servers, to agents, and to the lines between them. All but the first of each kind end after a
// while; what was killed is started again then.
const (
	KillServer    Action = "kill server"
	PauseServer   Action = "pause server"
	RestartServer Action = "restart server"
	DrainServer   Action = "drain server"
	KillAgent     Action = "kill agent"
	PauseAgent    Action = "pause agent"
	RestartAgent  Action = "restart agent"
	CutLine       Action = "cut line"
	HoldLine      Action = "hold line"
	LoseLine      Action = "lose line"
	DeafenLine    Action = "half-close line"
	Ambush        Action = "ambush line"
)

// ambushed are the frames at which an ambush cuts a line: those after which one side knows what the other does not.
var ambushed = []string{
	wire.AgentRegister{}.MessageType(), wire.RegisterAck{}.MessageType(), wire.JobDispatch{}.MessageType(), wire.JobAck{}.MessageType(),
	frameAckOfJob, frameRunning, wire.StepStatus{}.MessageType(), wire.LogChunk{}.MessageType(), frameAckOfChunk, frameEnd, frameAckOfEnd,
	wire.JobCancel{}.MessageType(),
}

// Fault is one thing that the killer does: to which target, when after the beginning, and for how long.
type Fault struct {
	At     time.Duration
	For    time.Duration
	Action Action
	Target int // server, agent, or line: those of the agents, that of the senders, that of the servers to their database

	// Of an ambush: at which frame it cuts the line, whether the frame is lost, and what is killed besides, how much later:
	// the server or the agent at the end of that line, or "" for nothing.
	Frame string
	Lost  bool
	Then  Action
	After time.Duration
}

// String is the fault as the progress tells it.
func (f Fault) String() string {
	text := fmt.Sprintf("%6.2fs %s %d for %s", f.At.Seconds(), f.Action, f.Target, f.For.Round(time.Millisecond))
	if f.Action != Ambush {
		return text
	}
	text += " at " + f.Frame
	if f.Lost {
		text += ", which is lost"
	}
	if f.Then != "" {
		text += fmt.Sprintf(", then %s after %s", f.Then, f.After.Round(time.Millisecond))
	}
	return text
}

// shape is what there is to be killed.
type shape struct {
	servers, agents, lines int
	duration               time.Duration
}

// actions with how often each is chosen, and what it is done to.
var actions = []struct {
	Action
	weight int
	on     func(shape) int // how many targets there are
	space  int             // targets of one space meet one fault at a time
}{
	{KillServer, 4, shape.serverCount, 0}, {PauseServer, 2, shape.serverCount, 0}, {RestartServer, 2, shape.serverCount, 0},
	{DrainServer, 1, shape.serverCount, 0},
	{KillAgent, 4, shape.agentCount, 1}, {PauseAgent, 3, shape.agentCount, 1}, {RestartAgent, 2, shape.agentCount, 1},
	{CutLine, 4, shape.lineCount, 2}, {HoldLine, 2, shape.lineCount, 2}, {LoseLine, 2, shape.lineCount, 2}, {DeafenLine, 2, shape.lineCount, 2},
	{Ambush, 8, shape.agentCount, 2},
}

func (s shape) serverCount() int { return s.servers }
func (s shape) agentCount() int  { return s.agents }
func (s shape) lineCount() int   { return s.lines }

// The times of faults. Of long plans some are denser than others, since a system that is never left alone gets nowhere. Long
// faults, which outlast every patience of the system, come in long plans only.
const (
	meanGap   = 500 * time.Millisecond // of the densest plan
	sparsest  = 4                      // times as long is that of the sparsest
	shortest  = 50 * time.Millisecond
	usual     = 3 * time.Second
	longest   = 35 * time.Second
	longRun   = 2 * time.Minute
	longShare = 15 // one in so many
)

// plan decides everything that the killer will do. The same seed and shape give the same plan.
func plan(seed uint64, s shape) []Fault {
	rng := rand.New(rand.NewPCG(seed, 0))
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	var faults []Fault
	busy := map[[2]int]time.Duration{} // until when a target has its fault
	gap := float64(meanGap)
	if s.duration >= longRun {
		gap *= 1 + rng.Float64()*(sparsest-1)
	}
	for at := meanGap; at < s.duration; at += shortest + time.Duration(rng.ExpFloat64()*gap) {
		a := actions[pick(rng.IntN(total))]
		f := Fault{At: at, Action: a.Action, Target: rng.IntN(a.on(s)), For: length(rng, s)}
		f.For = min(f.For, s.duration-at)
		if f.Action == Ambush {
			f.ambush(rng)
		}
		target := [2]int{a.space, f.Target}
		if busy[target] > at {
			continue
		}
		busy[target] = at + f.For
		faults = append(faults, f)
	}
	return faults
}

// ambush decides where the line is cut and what follows.
func (f *Fault) ambush(rng *rand.Rand) {
	f.Frame = ambushed[rng.IntN(len(ambushed))]
	f.Lost = rng.IntN(2) == 0
	f.Then = [...]Action{"", "", KillServer, KillAgent}[rng.IntN(4)]
	if f.Then != "" {
		f.After = time.Duration(rng.Int64N(int64(time.Second)))
	}
}

// pick turns a number below the sum of the weights into an action.
func pick(n int) int {
	for i, a := range actions {
		if n < a.weight {
			return i
		}
		n -= a.weight
	}
	return 0
}

func length(rng *rand.Rand, s shape) time.Duration {
	if s.duration >= longRun && rng.IntN(longShare) == 0 {
		return usual + time.Duration(rng.Int64N(int64(longest-usual)))
	}
	return shortest + time.Duration(rng.Int64N(int64(usual-shortest)))
}
