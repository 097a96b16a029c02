package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
)

// The codes of what only this room tells: where a job is that neither waits nor has ended.
const (
	reasonRunning  = "running"
	reasonStarting = "starting"
	reasonStalled  = "stalled"
	reasonSilent   = "silent"
	reasonUnknown  = "unknown"
)

// stalledAfter is how long an agent may be alive and count nothing of a job before people are told. It is no fault: a step
// may work in silence.
const stalledAfter = 5 * time.Minute

// How often something is stored of an agent that has a job: the sign of a running job is due at this pace from agents with
// fast-beat, at the other from those without, which is that of an agent's own signs in the fleet, too.
const (
	signEvery     = time.Minute
	fastSignEvery = 10 * time.Second
)

// reason says why a queue row stands where it does.
func (v fleetView) reason(w waiting) ci.Reason {
	agent := ""
	if w.entry.AgentID != nil {
		agent = *w.entry.AgentID
	}
	switch {
	case w.entry.Status == ci.QueuePending:
		return v.pending(w)
	case w.entry.Status == ci.QueueRecovering && !w.started && w.ackUntil != 0:
		return v.unanswered(agent, w)
	case w.entry.Status == ci.QueueRecovering:
		return v.recovering(agent, w)
	case w.entry.Status == ci.QueueDispatched:
		return v.dispatched(agent, w)
	case w.reason != nil:
		return *w.reason
	}
	return noReason(string(w.entry.Status))
}

// noReason is for what has ended and of which nobody wrote why. A guess would be worse than none.
func noReason(status string) ci.Reason {
	return ci.NewReason(status, "ended as "+status, nil)
}

// unanswered is for a job whose agent is gone and never said that it got the job: it goes to another, and waits only for the
// end of the connection.
func (c clock) unanswered(agent string, w waiting) ci.Reason {
	return ci.NewReason(ci.ReasonRecovering, fmt.Sprintf("agent %s left the dispatch unanswered; it is offered again%s", agent,
		c.tell(" at ", adminwire.At(w.recoverUntil))), map[string]any{"agent": agent, "until": adminwire.At(w.recoverUntil), "started": false})
}

func (c clock) recovering(agent string, w waiting) ci.Reason {
	return ci.NewReason(ci.ReasonRecovering, fmt.Sprintf("agent %s lost its connection; waiting for it%s", agent, c.tell(" until ", adminwire.At(w.recoverUntil))),
		map[string]any{"agent": agent, "until": adminwire.At(w.recoverUntil), "started": w.started})
}

func (v fleetView) dispatched(agent string, w waiting) ci.Reason {
	switch {
	case w.ackUntil != 0:
		return ci.NewReason(ci.ReasonAwaitingAck, fmt.Sprintf("sent to agent %s, which has%s to answer", agent, v.tell(" until ", adminwire.At(w.ackUntil))),
			map[string]any{"agent": agent, "until": adminwire.At(w.ackUntil)})
	case !w.started:
		why := ci.NewReason(reasonStarting, fmt.Sprintf("agent %s has taken it and has not started it yet", agent),
			map[string]any{"agent": agent, "since": adminwire.At(w.claimed)})
		return v.silent(why, agent, w, signEvery)
	}
	since := adminwire.At(w.begun())
	every := signEvery
	if slices.Contains(v.agents[agent].Features, wire.FeatureFastBeat) {
		every = fastSignEvery
	}
	running := ci.NewReason(reasonRunning, fmt.Sprintf("with agent %s%s", agent, v.tell(" since ", since)),
		map[string]any{"agent": agent, "since": since, "lastSign": adminwire.At(w.lastSign)})
	if why := v.silent(running, agent, w, every); why.Code == reasonSilent {
		return why
	}
	if w.progress > 0 && w.progressAt > 0 && w.lastSign-w.progressAt >= stalledAfter.Milliseconds() {
		return ci.NewReason(reasonStalled, fmt.Sprintf("with agent %s%s; the agent is alive, and nothing has come of the job%s",
			agent, v.tell(" since ", since), v.tell(" since ", adminwire.At(w.progressAt))),
			map[string]any{"agent": agent, "since": since, "lastSign": adminwire.At(w.lastSign), "lastProgress": adminwire.At(w.progressAt)})
	}
	return running
}

// silent adds to a reason since when nothing has been heard of the agent, where that is longer than two of its signs take. What is
// stored of it is the signs of its job and, once a minute, those of the agent.
func (v fleetView) silent(why ci.Reason, agent string, w waiting, every time.Duration) ci.Reason {
	heard := max(w.lastSign, w.begun(), v.agents[agent].LastSeenAt)
	if heard == 0 || int64(v.clock)-heard <= 2*every.Milliseconds() {
		return why
	}
	return ci.NewReason(reasonSilent, fmt.Sprintf("%s; nothing has been heard of the agent%s", why.Message, v.tell(" since ", adminwire.At(heard))),
		map[string]any{"agent": agent, "since": adminwire.At(w.begun()), "lastSign": adminwire.At(w.lastSign), "lastHeard": adminwire.At(heard)})
}

// begun is when a job that an agent has started did so. An agent may come back with one whose start it never told; then
// it is when it was given the job.
func (w waiting) begun() int64 { return cmp.Or(w.startedAt, w.claimed) }

// clock is the moment at which somebody asks, epoch milliseconds. What is told of other times goes by it.
type clock int64

// tell tells a time of day behind a word, with its date where that is not today's, and nothing where there is no time.
func (c clock) tell(word string, at adminwire.Time) string {
	switch {
	case at.IsZero():
		return ""
	case at.Format(time.DateOnly) == adminwire.At(int64(c)).Format(time.DateOnly):
		return word + at.Format("15:04:05Z")
	}
	return word + day(at)
}

// pending says what a job waits for that no agent has.
func (v fleetView) pending(w waiting) ci.Reason {
	candidates := v.candidates(w.selector)
	line := map[string]any{"ahead": w.ahead, "attempts": w.entry.Attempts, "connected": v.connected}
	s := v.standingOf(candidates)
	s.describe(line)
	nobody := v.nobodyHas(w.selector)
	if len(nobody) > 0 {
		line["labelsNobodyHas"] = nobody
	}
	code, message := ci.ReasonNoAgent, ""
	switch {
	case len(s.fitting) == 0 && len(s.rebooting) == 0:
		message = v.nobodyFits(w.selector, nobody, candidates)
		if w.provisioning != "" {
			message += "; starting one failed: " + w.provisioning
			line["provisioningError"] = w.provisioning
		}
	case len(s.open) == 0:
		code, message = s.closed()
	case len(s.free) == 0:
		code, message = ci.ReasonQueued, fmt.Sprintf("%s; %s in line before it%s", v.allBusy(s.open, s.others()), plural(w.ahead, "job"), s.also())
	default:
		code, message = ci.ReasonQueued, fmt.Sprintf("agent %s fits and is free; %s in line before it", s.free[0].AgentID, plural(w.ahead, "job"))
	}
	return ci.NewReason(code, message+again(w), line)
}

// nobodyFits names the agent that lacks least and the labels that are nowhere, and one that would fit were it here.
func (v fleetView) nobodyFits(s label.Selector, nobody []string, candidates []adminwire.Candidate) string {
	message := "no agent is connected"
	switch {
	case s.Pin != "" && (len(candidates) == 0 || !candidates[0].AwaySince.IsZero()):
		message = fmt.Sprintf("it is pinned to agent %s, which is not connected", s.Pin)
	case v.connected > 0:
		message = fmt.Sprintf("no connected agent fits; the nearest, %s, %s", candidates[0].AgentID, strings.Join(candidates[0].Missing, "; "))
	}
	if v.connected > 0 && len(nobody) == 1 {
		message += "; none has label " + nobody[0]
	} else if v.connected > 0 && len(nobody) > 1 {
		message += "; none has any of the labels " + strings.Join(nobody, ", ")
	}
	i := slices.IndexFunc(candidates, func(c adminwire.Candidate) bool { return !c.AwaySince.IsZero() })
	if i >= 0 {
		message += fmt.Sprintf("; agent %s would fit and is not connected%s", candidates[i].AgentID, v.tell(" since ", candidates[i].AwaySince))
	}
	return message
}

func shortList(names []string) string {
	text := strings.Join(names[:min(len(names), ci.MaxListEntries)], ", ")
	if more := len(names) - ci.MaxListEntries; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// allBusy names the jobs when only one agent fits, since they are then what is waited for; else who has been busy longest.
// others tells that more fit and get no jobs.
func (c clock) allBusy(fitting []adminwire.Candidate, others bool) string {
	one, many := "fits", "fit"
	if others {
		one, many = "fits and gets jobs", "fit and get jobs"
	}
	if len(fitting) == 1 {
		jobs := make([]string, len(fitting[0].Busy))
		for i, o := range fitting[0].Busy {
			jobs[i] = c.occupant(o)
		}
		return fmt.Sprintf("the only agent that %s, %s, is busy with %s", one, fitting[0].AgentID, strings.Join(jobs, ", "))
	}
	longest := slices.MinFunc(fitting, func(a, b adminwire.Candidate) int { return a.Busy[0].Since.Compare(b.Busy[0].Since.Time) })
	return fmt.Sprintf("all %d agents that %s are busy, %s the longest with %s", len(fitting), many, longest.AgentID, c.occupant(longest.Busy[0]))
}

func (c clock) occupant(o adminwire.Occupant) string {
	if o.RunID == "" {
		return fmt.Sprintf("%s%s", o.JobName, c.tell(" since ", o.Since))
	}
	return fmt.Sprintf("%s of run %s%s", o.JobName, o.RunID, c.tell(" since ", o.Since))
}

// again tells of the deliveries that came to nothing, in the words in which the last was taken back.
func again(w waiting) string {
	switch {
	case w.reason != nil && w.reason.Code == ci.ReasonDeferred:
		return "; " + w.reason.Message
	case w.entry.Attempts == 0:
		return ""
	case w.reason != nil && w.reason.Code == ci.ReasonRequeued:
		return "; " + w.reason.Message
	}
	return fmt.Sprintf("; attempt %d of %d", w.entry.Attempts+1, ci.MaxDispatchAttempts)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
