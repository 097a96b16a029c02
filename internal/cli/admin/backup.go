package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/kit/version"
	"kici/internal/server"
	"kici/internal/server/backup"
)

// localFlags find a server's data on this machine by the server's own settings.
type localFlags struct{ config string }

func (f *localFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "the server's file of settings (default: KICI_CONFIG, else /etc/kici/orchestrator.yaml when it is there)")
}

// place is the server's data, by its settings and --data, and what lies elsewhere.
func (f *localFlags) place(a *admin) (p backup.Place, elsewhere string, err error) {
	flags := map[string]string{}
	if a.Where.DataDir != "" {
		flags["data"] = a.Where.DataDir
	}
	c, _, err := server.LoadConfig(f.config, a.Environ, flags)
	if err != nil {
		return p, "", fmt.Errorf("the server's settings are not right:\n%w", err)
	}
	s, err := c.Settings()
	if err != nil {
		return p, "", err
	}
	return backup.Place{DataDir: s.DataDir, DatabaseURL: s.DatabaseURL, MasterKey: s.MasterKey}, s.Storage.Elsewhere(s.DataDir), nil
}

// backupCommand works on the data itself, so it runs on the server's machine and needs no token.
func (a *admin) backupCommand() *cobra.Command {
	var local localFlags
	var o backup.Options
	cmd := &cobra.Command{
		Use:   "backup FILE|FOLDER",
		Short: "Copy the server of this machine, while it works",
		Long: "Copies the database as of one moment, and a list of the logs, caches and artifacts with their sizes and hashes; with --blobs\n" +
			"those too. A name that ends in .tar, .tar.gz or .tgz becomes an archive, any other a folder. The server may be at work.\n" +
			"On PostgreSQL it needs pg_dump on PATH. Secrets are in the backup as they are stored, encrypted with the master key; keep a\n" +
			"copy of that key elsewhere, or put it into the backup with --include-key.",
		Example: "  kici admin backup /var/backups/kici-monday.tar.gz --blobs\n  kici admin backup /var/backups/kici --data /srv/kici --json",
		Args:    cobra.ExactArgs(1),
	}
	local.add(cmd)
	cmd.Flags().BoolVar(&o.Blobs, "blobs", false, "copy logs, caches and artifacts too, not only their list")
	cmd.Flags().BoolVar(&o.Key, "include-key", false, "put the master key into the backup: who has the backup can then read every secret")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, elsewhere, err := local.place(a)
		if err != nil {
			return err
		}
		if elsewhere != "" {
			fmt.Fprintf(a.Stderr, "Warning: %s and are not in the backup: back that up, too\n", elsewhere)
		}
		if o.Key {
			fmt.Fprintln(a.Stderr, "Warning: the backup will hold the master key: who has it can read every secret")
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		progress := a.progress()
		o.Version, o.Now, o.Progress = version.Read().Version, time.Now(), progress.show
		m, err := backup.Create(ctx, from, args[0], o)
		progress.end()
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(m)
		}
		fmt.Fprintf(a.Stdout, "Backed up to %s: database of %s, %s of logs, caches and artifacts with %s %s.\n", args[0], bytesText(m.Database.Size),
			console.Plural(int(m.Blobs.Files), "file"), bytesText(m.Blobs.Bytes), map[bool]string{true: "included", false: "listed only"}[m.Blobs.Included])
		return nil
	}
	return cmd
}

func (a *admin) restoreCommand() *cobra.Command {
	var local localFlags
	var o backup.RestoreOptions
	cmd := &cobra.Command{
		Use:   "restore FILE|FOLDER",
		Short: "Put a backup where no server runs",
		Long: "Unpacks a backup, checks every hash in it, and puts it into the data folder, or with it into the PostgreSQL database that\n" +
			"the settings name (with pg_restore). It refuses where a server runs, and where there is something already. With --force what\n" +
			"is in the data folder is moved into a folder replaced-… there, and the tables of the database are dropped.",
		Example: "  kici admin restore /var/backups/kici-monday.tar.gz --data /srv/kici\n  KICI_DATABASE_URL=postgres://… kici admin restore /var/backups/kici --force --json",
		Args:    cobra.ExactArgs(1),
	}
	local.add(cmd)
	cmd.Flags().BoolVar(&o.Force, "force", false, "put the backup in the place of what is there")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		to, _, err := local.place(a)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		progress := a.progress()
		o.Now, o.Progress, o.Hold = time.Now(), progress.show, server.HoldFolder
		done, err := backup.Restore(ctx, args[0], to, o)
		progress.end()
		return a.tellRestored(done, to, err)
	}
	return cmd
}

func (a *admin) tellRestored(done backup.Restored, to backup.Place, err error) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; what was there is untouched unless a folder replaced-… says otherwise")
	}
	if err != nil {
		return err
	}
	for _, w := range done.Warnings {
		fmt.Fprintf(a.Stderr, "Warning: %s\n", w)
	}
	if a.JSON {
		return a.PrintJSON(done)
	}
	fmt.Fprintf(a.Stdout, "Restored the backup of %s into %s: %s of logs, caches and artifacts in place.\n",
		done.Manifest.CreatedAt.Format(time.RFC3339), to.DataDir, console.Plural(int(done.Blobs.Present), "file"))
	if done.MovedAside != "" {
		fmt.Fprintf(a.Stdout, "What was there is in %s.\n", done.MovedAside)
	}
	return nil
}

// progressEvery is how often it is told how far something is.
const progressEvery = 250 * time.Millisecond

// progress writes how far something is over itself on a terminal, and nothing elsewhere.
type progress struct {
	out   io.Writer
	next  time.Time
	wrote bool
}

func (a *admin) progress() *progress {
	if _, ok := console.Terminal(a.Stderr); ok && !a.JSON {
		return &progress{out: a.Stderr}
	}
	return &progress{out: io.Discard}
}

func (p *progress) show(now backup.Progress) {
	if time.Now().Before(p.next) {
		return
	}
	p.next, p.wrote = time.Now().Add(progressEvery), true
	fmt.Fprintf(p.out, "\r%s: %d files, %s\x1b[K", now.What, now.Files, bytesText(now.Bytes))
}

func (p *progress) end() {
	if p.wrote {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// bytesText is a number of bytes as people read it.
func bytesText(n int64) string {
	if n < 1024 {
		return console.Plural(int(n), "byte")
	}
	value, units := float64(n)/1024, "KMGTPE"
	for value >= 1024 && len(units) > 1 {
		value, units = value/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}
