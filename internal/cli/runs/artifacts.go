package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

func (a *admin) artifactsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "artifacts RUN",
		Short:   "List the files that a run left behind",
		Example: "  kici admin runs artifacts latest",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
			list, err := c.Artifacts(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.ArtifactList{Artifacts: list})
			}
			t := console.Table{What: "artifacts", Head: []string{"NAME", "BYTES", "JOB", "CREATED", "EXPIRES"}}
			for _, f := range list {
				t.Row(f.Name, strconv.FormatInt(f.SizeBytes, 10), f.JobID, console.When(f.CreatedAt), console.When(f.ExpiresAt))
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

func (a *admin) downloadCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "download RUN NAME",
		Short: "Download a file that a run left behind",
		Long: "Downloads an artifact and compares it with the hash that its job reported. Without -o it goes to a file of its name in this\n" +
			"folder, which must not exist yet; -o names another file, or - for the standard output.",
		Example: "  kici admin runs download latest report.html -o /tmp/report.html",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, - for the standard output")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := runID(ctx, c, a.named(cmd), args[0])
		if err != nil {
			return err
		}
		if output == "" {
			if output, err = freeName(args[1]); err != nil {
				return err
			}
		}
		link, err := c.ArtifactLink(ctx, id, args[1])
		if err != nil {
			return err
		}
		if output == "-" {
			return c.Download(ctx, link, a.Stdout)
		}
		if err := saveArtifact(ctx, c, link, output); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(link.Artifact)
		}
		fmt.Fprintf(a.Stderr, "%s: %d bytes\n", livetree.Clean(output), link.SizeBytes)
		return nil
	})
	return cmd
}

// freeName is the file in this folder that an artifact goes to when none is named. Its name is a workflow's: it leads
// nowhere else, replaces nothing, and is not one of the hidden files that programs read by themselves.
func freeName(artifact string) (string, error) {
	name := path.Base(strings.ReplaceAll(artifact, `\`, "/"))
	if strings.HasPrefix(name, ".") || name == "/" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == ':' }) {
		return "", console.Usage("the artifact's name is no name of a file; name one with -o")
	}
	if _, err := os.Lstat(name); err == nil {
		return "", fmt.Errorf("%s exists already; name another file with -o", livetree.Clean(name))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for %s: %w", livetree.Clean(name), err)
	}
	return name, nil
}

// saveArtifact downloads to a file beside the one that is wanted, which is replaced only by what is complete.
func saveArtifact(ctx context.Context, c *client.Client, link adminwire.ArtifactLink, output string) error {
	file, err := os.CreateTemp(filepath.Dir(output), ".kici-download-*")
	if err != nil {
		return fmt.Errorf("make file: %w", err)
	}
	err = c.Download(ctx, link, file)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), output)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
