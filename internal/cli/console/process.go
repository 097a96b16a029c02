// Package console is what all verbs of the command line share: the process that they run in, how they end, and how they
// print to people and programs.
package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Process is what a command has of the process that runs it.
type Process struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string
}

// Env is a variable of the process, "" when it is not set.
func (p Process) Env(name string) string {
	for i := len(p.Environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(p.Environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// Terminal gives the descriptor of a stream that is a terminal.
func Terminal(stream any) (fd int, ok bool) {
	f, isFile := stream.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// PrintJSON prints a value as a program reads it.
func (p Process) PrintJSON(v any) error {
	e := json.NewEncoder(p.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// PrintLine prints a value as one line of JSON.
func (p Process) PrintLine(v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(p.Stdout, "%s\n", raw)
	}
	return err
}

// Confirm asks before something is lost. Without a terminal there is nobody to ask: the answer is no.
func (p Process) Confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	_, asked := Terminal(p.Stdin)
	if asked {
		fmt.Fprintf(p.Stderr, "%s [y/N] ", question)
		answer, _ := bufio.NewReader(p.Stdin).ReadString('\n') // an end without an answer is a no
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
			return nil
		}
	}
	fmt.Fprintln(p.Stderr, "Aborted.")
	if !asked {
		fmt.Fprintln(p.Stderr, "Use --yes where nobody can be asked.")
	}
	return &ExitError{Code: ExitFailure}
}
