package chaos

import (
	"fmt"
	"strings"

	"kici/internal/core/ci"
)

// late is how long after its end a server surely takes a job's lines; 30 s are promised.
const late = 25_000

func (c *check) ackedLines() {
	stored := map[stepKey]map[string]bool{}
	for key, lines := range c.Logs {
		stored[key] = map[string]bool{}
		for _, line := range lines {
			stored[key][line] = true
		}
	}
	missing := map[stepKey][]string{}
	for _, l := range c.Acked.Lines {
		if c.owed(l) && !stored[l.stepKey][l.Text] {
			missing[l.stepKey] = append(missing[l.stepKey], l.Text)
		}
	}
	for key, lines := range missing {
		c.fail("step %d of %s lacks %d acknowledged lines, such as %q", key.Step, c.name(key.Job), len(lines), lines[0])
	}
}

// owed tells whether the line's agent had the job when it was told that the line is taken, and in time.
func (c *check) owed(l ackedLine) bool {
	if j := c.jobs[l.Job]; j.Ended != 0 && l.At > j.Ended+late {
		return false
	}
	return c.had(l.Job, l.Agent, l.Sent, l.At)
}

// logs looks at the numbered lines of every step: they are in order and without repetition, on however many servers they
// lie, and the log of a step that succeeded is complete.
func (c *check) logs() {
	for _, s := range c.Steps {
		if s.Type != "" && s.Type != "step" {
			continue
		}
		c.ordered(s, c.Logs[s.stepKey])
		seen := map[string]bool{}
		for _, line := range c.Logs[s.stepKey] {
			if _, ok := number(line); ok {
				seen[line] = true
			}
		}
		if want := stepLines[s.Name]; s.Status == ci.StepSuccess && len(seen) != want {
			c.fail("the log of step %s of %s, which has succeeded, has %d of %d lines", s.Name, c.name(s.Job), len(seen), want)
		}
	}
}

func (c *check) ordered(s stepFact, lines []string) {
	before := 0
	for _, line := range lines {
		n, ok := number(line)
		if !ok {
			continue // a line of the system's own
		}
		if n <= before {
			c.fail("the log of step %s of %s has %q after line %d", s.Name, c.name(s.Job), line, before)
		}
		before = n
	}
}

// number reads the number of a line that a step has printed: "token step 3/8".
func number(line string) (n int, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return 0, false
	}
	_, err := fmt.Sscanf(fields[2], "%d/", &n)
	return n, err == nil
}
