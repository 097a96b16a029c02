package chaos

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// readLedger makes executions of the notes of steps. A line that a kill has torn is not possible: each is one small write
// at the end of the file.
func readLedger(r io.Reader) ([]execution, error) {
	var all []*execution
	byToken := map[string]*execution{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		n, err := parseNote(lines.Text())
		if err != nil {
			return nil, err
		}
		e := byToken[n.Token]
		if e == nil {
			e = &execution{Mark: n.Mark, Workflow: n.Workflow, Job: n.Job, Agent: n.Agent, Token: n.Token, Begun: n.at}
			all, byToken[n.Token] = append(all, e), e
		}
		e.Last = max(e.Last, n.at)
		switch n.what {
		case "begin":
			e.Steps = append(e.Steps, n.step)
		case "end":
			e.Finished = append(e.Finished, n.step)
		}
	}
	out := make([]execution, len(all))
	for i, e := range all {
		out[i] = *e
	}
	slices.SortStableFunc(out, func(a, b execution) int { return int(a.Begun - b.Begun) })
	return out, nil
}

// note is one line of the ledger.
type note struct {
	execution
	step string
	what string // begin, line or end
	at   int64
}

func parseNote(line string) (n note, err error) {
	f := strings.Split(line, "\t")
	if len(f) != 8 {
		return n, fmt.Errorf("ledger: %q has %d fields, not 8", line, len(f))
	}
	seconds, micros, _ := strings.Cut(f[7], ".")
	micro, err := strconv.ParseInt(seconds+micros, 10, 64)
	if err != nil || len(micros) != 6 {
		return n, fmt.Errorf("ledger: %q has no time", line)
	}
	n = note{execution: execution{Mark: f[0], Workflow: f[1], Job: f[2], Token: f[4], Agent: f[5]}, step: f[3], what: f[6], at: micro / 1000}
	return n, nil
}
