// Package remote is how the verbs of administration reach the server that they are about.
package remote

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// Server is what every verb of administration has: the process, how to reach the server, and how to print.
type Server struct {
	console.Process
	Where client.Where
	Org   string // the organisation that is asked about
	JSON  bool   // print the API's answer
}

// Connect makes the client. It is done when a verb runs, so that help works without a server.
func (s *Server) Connect() (*client.Client, error) {
	if s.Where.Token != "" {
		fmt.Fprintln(s.Stderr, "Warning: --token can be seen by other users of this machine; prefer KICI_ADMIN_TOKEN")
	}
	s.Where.Env = s.Env
	return client.Connect(s.Where)
}

// With runs a verb with a client.
func (s *Server) With(verb func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := s.Connect()
		if err != nil {
			return err
		}
		return verb(cmd.Context(), c, args)
	}
}

// FindSource finds a source by its name or id.
func (s *Server) FindSource(ctx context.Context, c *client.Client, name string) (adminwire.Source, error) {
	sources, err := c.Sources(ctx, s.Org)
	if err != nil {
		return adminwire.Source{}, err
	}
	var known []string
	for _, src := range sources {
		if src.Name == name || src.ID == name {
			return src, nil
		}
		known = append(known, src.Name)
	}
	if len(known) == 0 {
		return adminwire.Source{}, fmt.Errorf("there is no source %q, nor any other; make one with kici admin source add", name)
	}
	return adminwire.Source{}, fmt.Errorf("there is no source %q; there are %s", name, strings.Join(known, ", "))
}

// Typed asks for a word before something large is lost. Without a terminal there is nobody to ask: the answer is no.
func (s *Server) Typed(yes bool, word, warning string) error {
	if yes {
		return nil
	}
	if _, asked := console.Terminal(s.Stdin); asked {
		fmt.Fprintf(s.Stderr, "%s Type %s to go on: ", warning, word)
		answer, _ := bufio.NewReader(s.Stdin).ReadString('\n') // an end without an answer is a no
		if strings.TrimSpace(answer) == word {
			return nil
		}
		fmt.Fprintln(s.Stderr, "Aborted.")
	} else {
		fmt.Fprintln(s.Stderr, "Aborted.\nUse --yes where nobody can be asked.")
	}
	return &console.ExitError{Code: console.ExitFailure}
}
