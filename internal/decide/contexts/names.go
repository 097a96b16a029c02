package contexts

import "kici/internal/core/lockfile"

// Names are the contexts of a job as far as they are known.
type Names struct {
	Resolved []string // in merge order, repetitions kept
	Display  []string // one for each element, (dynamic) for what only an agent can name
	Unnamed  bool     // some element has no name yet
}

// NamesOf puts the constants of a job's elements and what their inline expressions gave together. inline has one entry
// for each element, nil where nothing was evaluated. A function that is not inline, and an expression that gave an empty
// text, need an agent.
func NamesOf(elements []lockfile.ContextRef, inline []*string) Names {
	n := Names{Resolved: []string{}, Display: []string{}}
	for i, c := range elements {
		name, shown := c.Value.Value, c.Value.Value
		switch {
		case c.Dynamic && c.Value.Inline == nil:
			name, shown = "", "(dynamic)"
			n.Unnamed = true
		case c.Dynamic && inline[i] != nil:
			name, shown = *inline[i], *inline[i]
			n.Unnamed = n.Unnamed || name == ""
		}
		n.Display = append(n.Display, shown)
		if name != "" {
			n.Resolved = append(n.Resolved, name)
		}
	}
	return n
}
