package backup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/client"
	"kici/internal/kit/seal"
	"kici/internal/server"
	"kici/internal/server/auth"
	"kici/internal/server/backup"
	"kici/internal/server/secrets"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Chunks of the logs of a busy server's runs: those of the first are short, those of the others are not.
const short, long = 5, 20

// busy is a server with ended runs, their logs and a secret, and somebody who pushes to it all the time.
func busy(t *testing.T, h *servertest.Home) (token string, runs []string) {
	t.Helper()
	token, _, err := auth.New(h.DB, time.Now, slog.New(slog.DiscardHandler)).CreateAdmin(t.Context(), auth.NewAdminToken{Label: "o", Role: auth.RoleOwner})
	must(t, err)
	must(t, vault(t, h.Settings, h.DB).Set(t.Context(), secrets.Actor{UserID: "u"}, servertest.Org, secrets.DefaultScope, "TOKEN", "planted-secret"))
	h.Start(t)
	brief := h.Employ(t, &servertest.Agent{ID: "brief", Slots: 4, Chunks: short})
	sha := h.Commit(t, "app", servertest.Lock("build", "test<build"))
	h.Push(t, "app", "main", sha)
	h.AwaitRuns(t, 1)
	brief.Kill()
	h.Employ(t, &servertest.Agent{ID: "agent", Slots: 4, Chunks: long})
	for range 2 {
		h.Push(t, "app", "main", sha)
	}
	h.AwaitRuns(t, 3)
	list, err := connect(t, h.URL(), token).Runs(t.Context(), client.RunQuery{})
	must(t, err)
	for _, r := range list.Runs {
		runs = append(runs, r.RunID)
	}
	ctx, stop := context.WithCancel(t.Context())
	pushing := make(chan struct{})
	go func() {
		defer close(pushing)
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = h.Deliver(ctx, servertest.Source, servertest.PushBody("app", "main", sha), fmt.Sprint("more-", n)) // what comes of it is not looked at
		}
	}()
	t.Cleanup(func() {
		stop()
		<-pushing
	})
	return token, runs
}

func vault(t *testing.T, s server.Settings, db *store.DB) *secrets.Store {
	keys, err := seal.NewKeyring(s.MasterKey, "")
	must(t, err)
	return secrets.New(db, keys, time.Now)
}

func connect(t *testing.T, url, token string) *client.Client {
	t.Helper()
	c, err := client.New(url, token)
	must(t, err)
	return c
}

// reading is all that the API tells of some runs.
func reading(t *testing.T, c *client.Client, runs []string) string {
	t.Helper()
	var out strings.Builder
	lengths := map[int64]int{}
	for _, id := range runs {
		run, err := c.Run(t.Context(), id)
		must(t, err)
		jobs, err := c.Jobs(t.Context(), id)
		must(t, err)
		raw, err := json.Marshal([]any{run, jobs})
		must(t, err)
		out.Write(raw)
		for _, j := range jobs {
			page, err := c.Logs(t.Context(), id, j.JobID, 0, client.LogQuery{})
			must(t, err)
			lengths[page.TotalLines]++
			fmt.Fprintln(&out, page.Lines)
		}
	}
	if diff := cmp.Diff(map[int64]int{short: 2, long: 4}, lengths); diff != "" {
		t.Errorf("logs by their lines: %s", diff)
	}
	return out.String()
}

func TestRestoredServerReadsTheSame(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		token, runs := busy(t, h)
		before := reading(t, connect(t, h.URL(), token), runs)
		from := backup.Place{DataDir: h.Settings.DataDir, DatabaseURL: h.Settings.DatabaseURL, MasterKey: h.Settings.MasterKey}
		for _, name := range []string{"folder", "archive.tar", "archive.tar.gz"} {
			t.Run(name, func(t *testing.T) {
				target := filepath.Join(t.TempDir(), name)
				m, err := backup.Create(t.Context(), from, target, backup.Options{Blobs: true, Now: time.Now(), Version: "1.2.3"})
				must(t, err)
				if m.Blobs.Files < 4 || m.KeyIncluded || m.KeyFingerprint == "" || m.Schema == 0 {
					t.Errorf("manifest %+v", m)
				}
				settings := h.Settings
				settings.DataDir = filepath.Join(t.TempDir(), "data")
				o := backup.RestoreOptions{Now: time.Now(), Hold: server.HoldFolder}
				if settings.DatabaseURL != "" {
					settings.DatabaseURL = storetest.PostgresURL(t)
					o.Force = true // the test's database has tables
				}
				to := backup.Place{DataDir: settings.DataDir, DatabaseURL: settings.DatabaseURL, MasterKey: settings.MasterKey}
				done, err := backup.Restore(t.Context(), target, to, o)
				must(t, err)
				if done.Blobs.Present != m.Blobs.Files || len(done.Warnings) != 1 || !strings.Contains(done.Warnings[0], "KICI_BOOTSTRAP_ADMIN_TOKEN") {
					t.Errorf("restored %+v", done)
				}
				s := start(t, settings)
				if diff := cmp.Diff(before, reading(t, connect(t, s.URL(), token), runs)); diff != "" {
					t.Errorf("the restored server reads otherwise: %s", diff)
				}
				db, err := store.Open(t.Context(), store.Options{URL: settings.DatabaseURL, Path: filepath.Join(settings.DataDir, "kici.db")})
				must(t, err)
				defer db.Close()
				values, err := vault(t, settings, db).ResolveFor(t.Context(), secrets.Job{RunID: "r", JobID: "j"}, servertest.Org, []string{secrets.DefaultScope})
				if err != nil || values["TOKEN"] != "planted-secret" {
					t.Errorf("secrets %v, %v", values, err)
				}
			})
		}
	})
}

func start(t *testing.T, settings server.Settings) *server.Server {
	t.Helper()
	s, err := server.Open(t.Context(), settings, slog.New(slog.DiscardHandler), t.Output())
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	must(t, s.Start(context.Background()))
	return s
}

func TestRestoreRefusesARunningServer(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		busy(t, h)
		from := backup.Place{DataDir: h.Settings.DataDir, DatabaseURL: h.Settings.DatabaseURL, MasterKey: h.Settings.MasterKey}
		target := filepath.Join(t.TempDir(), "b")
		_, err := backup.Create(t.Context(), from, target, backup.Options{Now: time.Now()})
		must(t, err)
		o := backup.RestoreOptions{Now: time.Now(), Hold: server.HoldFolder, Force: true}
		places := []backup.Place{from}
		if from.DatabaseURL != "" { // from another machine
			places = append(places, backup.Place{DataDir: t.TempDir(), DatabaseURL: from.DatabaseURL, MasterKey: from.MasterKey})
		}
		for _, to := range places {
			if _, err := backup.Restore(t.Context(), target, to, o); !errors.Is(err, backup.ErrRunning) {
				t.Errorf("over a running server: %v", err)
			}
		}
		if _, err := backup.Create(t.Context(), from, target, backup.Options{Now: time.Now()}); !errors.Is(err, backup.ErrExists) {
			t.Errorf("over another backup: %v", err)
		}
	})
}

func TestPasswordIsOnNoCommandLine(t *testing.T) {
	bin, seen := t.TempDir(), filepath.Join(t.TempDir(), "seen")
	script := "#!/bin/sh\necho \"args $* password $PGPASSWORD host $PGHOST port $PGPORT mode $PGSSLMODE other $PGLOCALEDIR\" > " + seen + "\necho 'cannot' >&2\nexit 1\n"
	must(t, os.WriteFile(filepath.Join(bin, "pg_dump"), []byte(script), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("PGLOCALEDIR", "of the caller")
	url := storetest.PostgresURL(t)
	withPassword := strings.Replace(strings.Replace(url, "@", ":planted-password@", 1), "?", "?connect_timeout=7&", 1)
	_, err := backup.Create(t.Context(), backup.Place{DataDir: t.TempDir(), DatabaseURL: withPassword}, filepath.Join(t.TempDir(), "b"), backup.Options{Now: time.Now()})
	if err == nil || !strings.Contains(err.Error(), "pg_dump: exit status 1: cannot") || strings.Contains(err.Error(), "planted") {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(seen)
	must(t, err)
	args, rest, _ := strings.Cut(string(raw), " password ")
	if strings.Contains(args, "planted") || !strings.HasPrefix(rest, "planted-password host 127.0.0.1 ") || !strings.HasSuffix(rest, "other \n") {
		t.Errorf("pg_dump was called with %s", raw)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := backup.Create(t.Context(), backup.Place{DataDir: t.TempDir(), DatabaseURL: url}, filepath.Join(t.TempDir(), "b"), backup.Options{Now: time.Now()}); err == nil || !strings.Contains(err.Error(), "pg_dump is not on PATH") {
		t.Errorf("without pg_dump: %v", err)
	}
}
