package server_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/orgs"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// wholeWorkflow adds members to the only workflow of a lock file.
func wholeWorkflow(lock []byte, members string) []byte {
	return bytes.Replace(lock, []byte(`"triggers":`), []byte(members+`,"triggers":`), 1)
}

const (
	installTokens = `"registries":[{"url":"https://npm.example.org/","scope":"@acme","alwaysAuth":true,"tokenSecret":"prod:TOKEN"}],"installEnv":["base:HOME_KEY"]`
	onLinux       = `,"runsOn":[{"kind":"exact","value":"linux"}]`
)

func putInstallSecrets(t *testing.T, h *servertest.Home) {
	t.Helper()
	putContext(t, h, "prod", "prod", nil, nil)
	putContext(t, h, "base", "base", nil, nil)
	setSecret(t, h, "prod", "TOKEN", declaredValue)
	setSecret(t, h, "base", "HOME_KEY", refusedValue)
}

func TestEveryJobThatInstallsGetsTheInstallSecretsAndNoRowDoes(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		putInstallSecrets(t, h)
		h.Start(t)
		p := h.Dial(t)
		p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux", "kici:role:init-runner", "kici:os:linux", "kici:arch:x64"}, MaxConcurrency: 9})
		h.Push(t, app, "main", h.Commit(t, app, wholeWorkflow(lockOf(lockJob("plain", onLinux), lockJob("late", onLinux+`,"dynamicEnv":true`),
			`{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":2},"group":"g"}`), installTokens)))
		for range 3 { // a job, an init job and a generator
			d, ok := p.Next().(wire.JobDispatch)
			if !ok {
				t.Fatal("no dispatch came")
			}
			registries := []wire.NpmRegistry{{URL: "https://npm.example.org/", Scope: "@acme", AlwaysAuth: true, Token: declaredValue}}
			if diff := cmp.Diff(registries, d.NpmRegistries); diff != "" {
				t.Errorf("registries of %s (- want, + got):\n%s", jobNames(t, d), diff)
			}
			if diff := cmp.Diff(map[string]string{"HOME_KEY": refusedValue}, d.InstallEnvSecrets); diff != "" {
				t.Errorf("environment of %s (- want, + got):\n%s", jobNames(t, d), diff)
			}
			if len(d.Secrets) > 0 {
				t.Errorf("steps of %s get secrets %v", jobNames(t, d), d.Secrets)
			}
		}
		inClear(t, h)
		text := metrics(t, h.URL())
		for _, line := range []string{
			`kici_orch_install_secrets_decisions_total{decision="pass",reason=""} 1`, `kici_orch_install_secrets_decisions_total{decision="hold",reason="reviewer"} 0`,
			`kici_orch_install_secrets_npm_registry_used_total{channel="standard",provider="generic",scope="@acme"} 1`,
			`kici_orch_install_secrets_npm_registry_used_total{channel="init",provider="generic",scope="@acme"} 1`,
			`kici_orch_install_secrets_contributor_stripped_total{trust_tier="known"} 0`,
			`kici_orch_install_secrets_token_resolution_duration_seconds_count{environment="prod"} 3`,
			`kici_orch_install_secrets_token_resolution_duration_seconds_count{environment="base"} 3`,
		} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("metrics lack %s", line)
			}
		}
	})
}

func TestTheOrganisationSaysWhetherRegistriesMayBeWithoutTLS(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		putInstallSecrets(t, h)
		plain := wholeWorkflow(servertest.Lock("build"), strings.Replace(installTokens, "https://", "http://", 1))
		allow := func(on bool) {
			_, _, err := orgs.Change(t.Context(), h.DB, time.Now, servertest.Org, func(s *orgs.Settings) error { s.AllowHTTPRegistries = on; return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		allow(true)
		h.Start(t)
		h.Push(t, app, "main", h.Commit(t, app, plain))
		servertest.Await(t, "the queued job", func() bool { return h.Count(t, "SELECT count(*) FROM dispatch_queue") == 1 }, nil)
		p := h.Dial(t)
		p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux"}, MaxConcurrency: 1})
		d := nextDispatch(t, p, "build")
		if len(d.NpmRegistries) != 1 || d.NpmRegistries[0].URL != "http://npm.example.org/" {
			t.Errorf("registries %v", d.NpmRegistries)
		}
		allow(false)
		p.Send(wire.JobReject{MessageID: "reject", RunID: d.RunID, JobID: d.JobID, Reason: wire.RejectBusy, Timestamp: 1})
		p.Send(wire.AgentStatus{MessageID: "idle", AgentID: "a"})
		h.AwaitRuns(t, 1) // given out again, its registry is no longer allowed
		var failure string
		err := h.DB.Read().QueryRowContext(t.Context(), "SELECT init_failure FROM execution_jobs").Scan(&failure)
		if err != nil || !strings.Contains(failure, ci.InitInstallSecrets) || !strings.Contains(failure, "must be https") {
			t.Errorf("the job ended because of %s, %v", failure, err)
		}
	})
}

func TestInstallSecretsAreResolvedAtTheDispatchOrTheJobEnds(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, h *servertest.Home)
		want   string // of the failure, "" where the job is given out without them
	}{
		{"the secret went", func(t *testing.T, h *servertest.Home) {
			change(t, h, "DELETE FROM scoped_secrets WHERE key = 'HOME_KEY'")
		}, "installEnv[0]: environment 'base' has no secret 'HOME_KEY'"},
		{"its context went", func(t *testing.T, h *servertest.Home) {
			if err := contextStore(t, h).Delete(t.Context(), servertest.Org, "prod"); err != nil {
				t.Fatal(err)
			}
		}, "context 'prod' does not exist"},
		{"its contributor is not trusted", func(t *testing.T, h *servertest.Home) {
			change(t, h, "UPDATE execution_runs SET trust_tier = 'known'")
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
				putInstallSecrets(t, h)
				h.Start(t)
				h.Push(t, app, "main", h.Commit(t, app, wholeWorkflow(servertest.Lock("build"), installTokens)))
				servertest.Await(t, "the queued job", func() bool { return h.Count(t, "SELECT count(*) FROM dispatch_queue") == 1 }, nil)
				tt.change(t, h)
				p := h.Dial(t)
				p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux"}, MaxConcurrency: 1})
				if tt.want == "" {
					if d := nextDispatch(t, p, "build"); len(d.NpmRegistries)+len(d.InstallEnvSecrets) > 0 {
						t.Errorf("the job gets %v and %v", d.NpmRegistries, d.InstallEnvSecrets)
					}
					return
				}
				h.AwaitRuns(t, 1)
				var failure string
				err := h.DB.Read().QueryRowContext(t.Context(), "SELECT init_failure FROM execution_jobs").Scan(&failure)
				if err != nil || !strings.Contains(failure, ci.InitInstallSecrets) || !strings.Contains(failure, tt.want) {
					t.Errorf("the job ended because of %s, %v", failure, err)
				}
			})
		})
	}
}

func change(t *testing.T, h *servertest.Home, statement string) {
	t.Helper()
	err := h.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheContextsOfAWorkflowLieUnderThoseOfItsJobs(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		for _, name := range []string{"shared", "prod"} {
			setSecret(t, h, name, "TOKEN", "of "+name)
			setSecret(t, h, name, name, "only there")
			putContext(t, h, name, name, map[string]string{"LEVEL": name}, nil)
		}
		h.Start(t)
		p := h.Dial(t)
		p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux"}, MaxConcurrency: 1})
		h.Push(t, app, "main", h.Commit(t, app, wholeWorkflow(inContext("prod"), `"contexts":["shared"]`)))
		d := nextDispatch(t, p, "build")
		if diff := cmp.Diff(map[string]string{"TOKEN": "of prod", "shared": "only there", "prod": "only there"}, d.Secrets); diff != "" {
			t.Errorf("secrets (- want, + got):\n%s", diff)
		}
		config := needed(t, d.JobConfig)
		if diff := cmp.Diff(map[string]any{"LEVEL": "prod"}, config["environmentVars"]); diff != "" {
			t.Errorf("variables (- want, + got):\n%s", diff)
		}
		if config["environment"] != "prod" {
			t.Errorf("the job deploys to %v", config["environment"])
		}
	})
}
