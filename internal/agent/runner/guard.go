package runner

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// guardGrace is how much longer than its time limit a step may hold the script before the host ends it. A step that
// yields is ended by the script itself well before. Tests, whose machines may be busy but whose steps are short, take less.
var guardGrace = 3 * time.Second

// guard ends a step that does not let the script act on its time limit, such as one in an endless loop.
type guard struct {
	fire func(*stuck)

	mu    sync.Mutex
	armed map[int]*time.Timer // by step index: children of a parallel group run at once
}

// stuck is the step that a guard has given up, or a function that is called outside of steps.
type stuck struct {
	StepIndex int     `json:"stepIndex"`
	StepName  string  `json:"stepName"`
	Ms        float64 `json:"ms"`      // its time limit; 0 disarms
	Failure   string  `json:"failure"` // the error of the job when it is no step, else ""
}

func (s *stuck) Error() string {
	if s.Failure != "" {
		return s.Failure
	}
	return fmt.Sprintf("Step '%s' timed out after %sms", s.StepName, strconv.FormatFloat(s.Ms, 'f', -1, 64))
}

// set arms the guard of a step, or disarms it. Arming anew begins the time anew, as each attempt has its own.
func (g *guard) set(s stuck) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.armed[s.StepIndex]; t != nil {
		t.Stop()
		delete(g.armed, s.StepIndex)
	}
	if s.Ms <= 0 {
		return
	}
	if g.armed == nil {
		g.armed = map[int]*time.Timer{}
	}
	g.armed[s.StepIndex] = time.AfterFunc(milliseconds(s.Ms)+guardGrace, func() { g.fire(&s) })
}

// disarm ends all of them with the job.
func (g *guard) disarm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.armed {
		t.Stop()
	}
	g.armed = nil
}
