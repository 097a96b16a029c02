// Command kici is the orchestrator, the agent, the author's tools and the administration in one binary.
package main

import (
	"context"
	"os"

	"kici/internal/cli"
)

func main() {
	cli.CoarseTimers(os.Args)
	os.Exit(cli.Run(context.Background(), os.Args, cli.Process{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(),
	}))
}
