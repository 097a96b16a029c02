package sample

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kici/internal/core/ci"
)

// Authored is a fixture that a workflow file exports, by the options that its author wrote.
type Authored struct {
	Description  string
	Inputs       map[string]string // of a dispatch, as a command line has them
	Name         string            // of a built-in event; "" for a whole one
	branch       string
	payload      json.RawMessage
	changedFiles []string
	whole        *wholeEvent
}

// wholeEvent is an event as triggers see it.
type wholeEvent struct {
	Type         string          `json:"type"`
	Action       string          `json:"action"`
	TargetBranch string          `json:"targetBranch"`
	SourceBranch string          `json:"sourceBranch"`
	Payload      json.RawMessage `json:"payload"`
}

// ParseAuthored reads the options of a fixture. An error names what is wrong with them.
func ParseAuthored(options json.RawMessage) (Authored, error) {
	var o struct {
		Description  string          `json:"description"`
		Event        json.RawMessage `json:"event"`
		Branch       string          `json:"branch"`
		Payload      json.RawMessage `json:"payload"`
		ChangedFiles []string        `json:"changedFiles"`
		Inputs       map[string]any  `json:"inputs"`
	}
	if err := strictly(options, &o); err != nil {
		return Authored{}, err
	}
	a := Authored{Description: o.Description, Inputs: map[string]string{}, branch: o.Branch, payload: o.Payload, changedFiles: o.ChangedFiles}
	for name, value := range o.Inputs {
		switch v := value.(type) {
		case string:
			a.Inputs[name] = v
		case float64:
			a.Inputs[name] = strconv.FormatFloat(v, 'f', -1, 64)
		case bool:
			a.Inputs[name] = strconv.FormatBool(v)
		default:
			return a, fmt.Errorf("input %q must be a text, a number or a truth value", name)
		}
	}
	switch {
	case len(o.Event) > 0 && o.Event[0] == '"':
		return a, json.Unmarshal(o.Event, &a.Name)
	case len(o.Event) == 0 || o.Event[0] != '{':
		return a, errors.New("event must be the name of a built-in event, as in 'push', or an object with a type")
	case o.Branch != "" || len(o.Payload) > 0:
		return a, errors.New("branch and payload are for built-in events: a whole event says them itself")
	}
	a.whole = &wholeEvent{}
	if err := strictly(o.Event, a.whole); err != nil {
		return a, fmt.Errorf("event: %w", err)
	}
	if a.whole.Type == "" {
		return a, errors.New("event needs a type, as in 'push'")
	}
	return a, nil
}

// strictly refuses members that nobody reads, which are mistakes in their names.
func strictly(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// Envelope is the event as triggers, rules and steps see it. The settings are for what the author has not said; files are
// the changed files, nil for those of the author.
func (a Authored) Envelope(s Settings, files []string) (ci.Event, error) {
	if files == nil {
		files = a.changedFiles
	}
	if a.whole != nil {
		return a.whole.envelope(s, files), nil
	}
	s.Branch = cmp.Or(a.branch, s.Branch)
	d, known, err := Make(a.Name, s)
	if err != nil {
		return ci.Event{}, err
	}
	if !known {
		return ci.Event{}, fmt.Errorf("no built-in event is called %q", a.Name)
	}
	if len(a.payload) > 0 {
		d.Payload = a.payload
	}
	return d.Envelope(files)
}

func (w wholeEvent) envelope(s Settings, files []string) ci.Event {
	ev := ci.Event{Type: w.Type, Action: w.Action, TargetBranch: cmp.Or(w.TargetBranch, s.Branch), SourceBranch: w.SourceBranch,
		Payload: w.Payload, SourceRepo: s.Repo, ChangedFilesStatus: ci.FilesUnavailable}
	if len(ev.Payload) == 0 {
		ev.Payload = json.RawMessage("{}")
	}
	if files != nil {
		ev.ChangedFiles, ev.ChangedFilesStatus = files, ci.FilesFetched
	}
	return ev
}
