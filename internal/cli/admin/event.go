package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// maxEventPayload bounds what is read of a payload. The server takes less, and says so.
const maxEventPayload = 1 << 20

func (a *admin) eventCommand() *cobra.Command {
	return console.Group("event", "Events that workflows tell one another", nil, a.eventEmitCommand())
}

func (a *admin) eventEmitCommand() *cobra.Command {
	var file string
	var in adminwire.EmitEvent
	cmd := &cobra.Command{
		Use:   "emit NAME",
		Short: "Tell the workflows something, as ctx.emit in a step does",
		Long: "Writes an event of this name, the first of a chain, that is kept for an hour. Its payload is the JSON object in a file, or on\n" +
			"stdin for -. Names that begin with __ or kici. are the server's own.",
		Example: "  kici admin event emit deploy.requested --payload-file deploy.json\n" +
			"  echo '{\"version\":\"1.2\"}' | kici admin event emit release --payload-file - --source-repo acme/app",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&file, "payload-file", "", "file of the payload, a JSON object; - is stdin (required)")
	cmd.Flags().StringVar(&in.SourceRoutingKey, "source-routing-key", "", "routing key of the source that the event comes from")
	cmd.Flags().StringVar(&in.SourceRepo, "source-repo", "", "repository that the event comes from")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) (err error) {
		if in.Payload, err = a.payload(file); err != nil {
			return err
		}
		in.EventName = args[0]
		made, err := c.EmitEvent(ctx, in)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(made)
		}
		fmt.Fprintf(a.Stdout, "Event %s emitted: %s\n", args[0], made.EventID)
		return nil
	})
	return cmd
}

// payload reads a JSON document from a file or from stdin.
func (a *admin) payload(file string) (json.RawMessage, error) {
	source := a.Stdin
	switch file {
	case "":
		return nil, console.Usage("--payload-file is required: a file that holds a JSON object, or - for stdin")
	case "-":
	default:
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		source = f
	}
	raw, err := io.ReadAll(io.LimitReader(source, maxEventPayload+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(raw) > maxEventPayload:
		return nil, fmt.Errorf("the payload is larger than %d bytes", maxEventPayload)
	case !json.Valid(raw):
		return nil, fmt.Errorf("the payload is not JSON: it must be an object")
	}
	return raw, nil
}
