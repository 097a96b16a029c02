package adminapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/core/label"
	"kici/internal/decide/plan"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestOfManyWhoDecideAHoldAtOnceOneDoes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		for round := range 5 {
			run := fmt.Sprint("r", round)
			id := s.hold(t, run, scopedKey)
			call(t, s, s.Admin, "POST", "/api/v1/admin/held-runs/decision", adminwire.HoldAnswer{HoldID: id, Decision: "approve", As: "anna"}).want(t, 200, "pending")
			var all sync.WaitGroup
			got := make([]reply, 8)
			for i := range got {
				all.Go(func() {
					decision := []string{"approve", "reject"}[i%2]
					got[i] = call(t, s, s.Admin, "POST", "/api/v1/admin/held-runs/decision", adminwire.HoldAnswer{HoldID: id, Decision: decision, As: "team:ops"})
				})
			}
			all.Wait()
			decided := ""
			for _, r := range got {
				switch {
				case r.status == 200 && decided == "":
					decided = r.body
				case r.status != 409 || !strings.Contains(r.body, "decided already"):
					t.Errorf("got %d %s, and %s before", r.status, r.body, decided)
				}
			}
			want := map[string]string{`{"status":"released"}`: "pending", `{"status":"rejected"}`: "failed"}[decided]
			call(t, s, s.Admin, "GET", "/api/v1/admin/runs/"+run, nil).want(t, 200, `"status":"`+want+`"`)
			closed := decode[adminwire.HeldRunList](t, call(t, s, s.Admin, "GET", "/api/v1/admin/held-runs?status=approved,rejected&runId="+run, nil))
			if len(closed.HeldRuns) != 1 || len(closed.HeldRuns[0].Approvals) != 2 {
				t.Errorf("the hold is %+v", closed)
			}
		}
	})
}

// inContext registers a run of one job that binds contexts.
func (s *rig) inContext(t *testing.T, run string, names ...string) error {
	return s.bound(t, run, scopedKey, names...)
}

func (s *rig) bound(t *testing.T, run, routingKey string, names ...string) error {
	job := plan.Job{ID: run + "-deploy", Name: "deploy", BaseName: "deploy", Selector: label.Selector{Labels: []string{"linux"}}, Config: []byte(`{}`),
		Contexts: names, ContextDisplay: names}
	return s.Engine.Register(t.Context(), engine.Registration{RunID: run, OrgID: "default", RoutingKey: routingKey, Provider: "local", Repo: "app",
		Ref: "main", SHA: "abc", TriggerEvent: "push", Plan: plan.Plan{Workflow: "ci", Jobs: []plan.Job{job}}})
}

func TestAContextIsDeletedOrHoldsAndNeverBoth(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		for round := range 12 {
			run, name := fmt.Sprint("r", round), fmt.Sprint("prod-", round)
			call(t, s, s.Admin, "POST", contextsPath, `{"orgId":"default","name":"shared"}`)
			call(t, s, s.Admin, "POST", contextsPath, `{"orgId":"default","name":"`+name+`","requiredReviewers":["anna"]}`).want(t, 201, "")
			var all sync.WaitGroup
			var deleted reply
			all.Go(func() { deleted = call(t, s, s.Admin, "DELETE", contextsPath+"/"+name+"?orgId=default", nil) })
			all.Go(func() {
				if err := s.inContext(t, run, "shared", name); err != nil {
					t.Error(err)
				}
			})
			all.Wait()
			explained := call(t, s, s.Admin, "GET", "/api/v1/admin/runs/"+run+"/explain", nil)
			switch deleted.status {
			case 409:
				explained.want(t, 200, "Requires approval from: anna")
			case 200:
				explained.want(t, 200, "multi-environment gate: '"+name+"' rejected")
			default:
				t.Errorf("delete: %d %s", deleted.status, deleted.body)
			}
		}
	})
}

func TestPagesHaveTheirBorders(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		for _, run := range []string{"a", "b", "c"} {
			s.Register(t, run, scopedKey)
		}
		for query, want := range map[string]string{
			"limit=0":                      `"limit":20,"offset":0`,
			"limit=-1":                     `"limit":20,"offset":0`,
			"limit=ten":                    `"limit":20,"offset":0`,
			"limit=101":                    `"limit":100,"offset":0`,
			"limit=99999999999999999999":   `"limit":100,"offset":0`,
			"limit=-99999999999999999999":  `"limit":20,"offset":0`,
			"offset=-1":                    `"limit":20,"offset":0`,
			"offset=3":                     `{"runs":[],"total":3,"limit":20,"offset":3}`,
			"offset=9223372036854775807":   `{"runs":[],"total":3`,
			"offset=99999999999999999999":  `{"runs":[],"total":3`,
			"since=0001-01-01T00:00:00Z":   `"total":3`,
			"since=9999-12-31T23:59:59Z":   `"total":0`,
			"since=1970-01-01T00:00:00Z":   `"total":3`,
			"status=,%20,pending,,pending": `"total":3`,
		} {
			if got := call(t, s, s.Auditor, "GET", "/api/v1/admin/runs?"+query, nil); got.status != 200 || !strings.Contains(got.body, want) {
				t.Errorf("%s: %d %s, want %s", query, got.status, got.body, want)
			}
		}
		first := decode[adminwire.RunList](t, call(t, s, s.Auditor, "GET", "/api/v1/admin/runs?limit=2", nil))
		second := decode[adminwire.RunList](t, call(t, s, s.Auditor, "GET", "/api/v1/admin/runs?limit=2&offset=2", nil))
		seen := map[string]bool{}
		for _, r := range append(first.Runs, second.Runs...) {
			seen[r.RunID] = true
		}
		if len(seen) != 3 {
			t.Errorf("runs of one moment are on two pages or on none: %v", seen)
		}
		for _, path := range []string{"event-log?orgId=default&", "audit?", "queue?", "executions?", "held-runs?", "access-log?", "generic-sources?orgId=default&"} {
			for _, query := range []string{"limit=99999999999999999999", "offset=99999999999999999999", "limit=-1&offset=-1"} {
				call(t, s, s.Owner, "GET", "/api/v1/admin/"+path+query, nil).want(t, 200, "")
			}
		}
	})
}

// TestAScopedTokenLearnsNothingOfOtherSources looks at all that tells of agents and slots, which sources share.
func TestAScopedTokenLearnsNothingOfOtherSources(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		const other = "generic:default:planted-key"
		call(t, s, s.Admin, "POST", contextsPath, `{"orgId":"default","name":"prod","concurrencyLimit":1}`).want(t, 201, "")
		s.employ(t)
		check(t, s.bound(t, "planted-run", other, "prod"))
		s.give(t, "planted-run-deploy", "planted-run")
		check(t, s.bound(t, "mine", scopedKey))
		check(t, s.bound(t, "held", scopedKey, "prod"))
		for _, path := range []string{"/runs/mine/explain", "/runs/held/explain", "/queue", "/queue/mine-deploy", "/runs", "/executions", "/held-runs",
			"/runs/mine", "/runs/mine/jobs", "/runs/mine/structured", "/runs/mine/events", "/event-log?orgId=default"} {
			got := call(t, s, s.Scoped, "GET", "/api/v1/admin"+path, nil).want(t, 200, "")
			if strings.Contains(got.body, "planted") {
				t.Errorf("%s tells of another source: %s", path, got.body)
			}
		}
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/mine/explain", nil).want(t, 200, "the only agent that fits, a-1, is busy with a job of another source since")
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/held/explain", nil).want(t, 200, "Concurrency limit reached (1/1); now a job of another source; 0 jobs before it")
		call(t, s, s.Admin, "GET", "/api/v1/admin/runs/held/explain", nil).want(t, 200, "Concurrency limit reached (1/1); now deploy of run planted-run; 0 jobs before it")
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/held/jobs", nil).want(t, 200, `"environments":["prod"]`)
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/mine/jobs", nil).want(t, 200, `"environments":[]`)
	})
}

func TestTheQueueIsNarrowed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1") // build is with an agent; other and gpu wait
		for query, want := range map[string]string{
			"":                                   "build other gpu",
			"status=pending":                     "other gpu",
			"statusNotIn=pending":                "build",
			"statusNotIn=pending,dispatched":     "",
			"status=pending&statusNotIn=pending": "",
			"jobNamePrefix=b":                    "build",
			"jobNamePrefix=B":                    "",
			"jobNamePrefix=%25":                  "",
			"jobNameNotLike=%25u%25":             "other",
			"jobNameNotLike=BUILD":               "other gpu",
			"jobNameNotLike=_pu":                 "build other",
			"jobName=gpu&workflowName=ci":        "gpu",
			"createdAfter=2026-01-01T00:00:00Z":  "",
			"createdAfter=2025-12-31T23:59:59Z":  "build other gpu",
		} {
			var names []string
			for _, e := range decode[adminwire.QueueList](t, call(t, s, s.Auditor, "GET", "/api/v1/admin/queue?"+query, nil).want(t, 200, "")).Entries {
				names = append(names, e.JobName)
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		call(t, s, s.Auditor, "GET", "/api/v1/admin/queue?statusNotIn=gone", nil).want(t, 400, "Invalid status")
		call(t, s, s.Auditor, "GET", "/api/v1/admin/queue?createdAfter=yesterday", nil).want(t, 400, "Invalid createdAfter timestamp")
	})
}

func TestSecretsArePurgedAndAccessesShown(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/default/a/K", `{"value":"v"}`).want(t, 200, "")
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/other/a/K", `{"value":"v"}`).want(t, 200, "")
		call(t, s, s.Owner, "POST", "/api/v1/admin/secrets/purge", `{"orgId":"default"}`).want(t, 200, `{"deleted":1}`)
		call(t, s, s.Owner, "POST", "/api/v1/admin/secrets/purge", `{"orgId":5}`).want(t, 400, `"path":"orgId"`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/secrets/keys?orgId=other&scope=a", nil).want(t, 200, `{"keys":["K"]}`)
		call(t, s, s.Owner, "POST", "/api/v1/admin/secrets/purge", `{}`).want(t, 200, `{"deleted":1}`)
		type entries struct{ Items []struct{ ID, Action string } }
		found := decode[entries](t, call(t, s, s.Owner, "GET", "/api/v1/admin/access-log?action=secret.purge&outcome=allowed", nil))
		if len(found.Items) != 2 {
			t.Fatalf("noted %+v", found)
		}
		const path = "/api/v1/admin/access-log/"
		call(t, s, s.Auditor, "GET", path+found.Items[0].ID, nil).want(t, 200, `"action":"secret.purge"`)
		call(t, s, s.Auditor, "GET", path+found.Items[0].ID+"?orgId=elsewhere", nil).want(t, 404, "Access log entry not found")
		call(t, s, s.Auditor, "GET", path+"none", nil).want(t, 404, "Access log entry not found")
	})
}

func TestContextsOfAnyNameCanBeReached(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		for _, name := range []string{"review/PR-7", "a b", "100%", "%2F", "ä€🦊", "a?b=c", "a#b", ".hidden", "templates", "a//b", strings.Repeat("n", 128), ".", "..", "a/../b", "/"} {
			made := call(t, s, s.Admin, "POST", contextsPath, map[string]string{"orgId": "default", "name": name})
			if made.status == 400 && strings.Contains(made.body, "name must not be") {
				continue
			}
			made.want(t, 201, "")
			path := contextsPath + "/" + url.PathEscape(name)
			for _, r := range []struct{ method, path, body string }{{"GET", "?orgId=default", ""}, {"POST", "/bind", `{"orgId":"default","scopePattern":"a"}`},
				{"PUT", "/variables/K?orgId=default", `{"value":"v"}`}, {"GET", "/variables?orgId=default", ""},
				{"PATCH", "/policy", `{"orgId":"default","enabled":false}`}, {"DELETE", "?orgId=default", ""}} {
				if got := call(t, s, s.Admin, r.method, path+r.path, r.body); got.status >= 300 {
					t.Errorf("%s of %q: %d %s", r.method, name, got.status, got.body)
				}
			}
		}
	})
}

// TestNoContextOfAHeldRunIsDeletedWhilePeopleDecide looks at the contexts of a job and at those of install secrets.
func TestNoContextOfAHeldRunIsDeletedWhilePeopleDecide(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		call(t, s, s.Admin, "POST", contextsPath, `{"orgId":"default","name":"guards","type":"glob","globPattern":"prod/*","requiredReviewers":["anna"]}`).want(t, 201, "")
		call(t, s, s.Admin, "POST", contextsPath, `{"orgId":"default","name":"base"}`).want(t, 201, "")
		for _, name := range []string{"guards", "base"} {
			call(t, s, s.Admin, "POST", contextsPath+"/"+name+"/bind", `{"orgId":"default","scopePattern":"a"}`).want(t, 201, "")
		}
		call(t, s, s.Admin, "PUT", "/api/v1/admin/secrets/default/a/TOKEN", `{"value":"v"}`).want(t, 200, "")
		for run, register := range map[string]func() error{
			"job": func() error { return s.inContext(t, "job", "base", "prod/eu") },
			"install": func() error {
				j := plan.Job{ID: "install-build", Name: "build", BaseName: "build", Selector: label.Selector{Labels: []string{"linux"}}, Config: []byte(`{}`)}
				return s.Engine.Register(t.Context(), engine.Registration{RunID: "install", OrgID: "default", RoutingKey: scopedKey, Provider: "local", Repo: "app",
					Ref: "main", SHA: "abc", TriggerEvent: "push", Plan: plan.Plan{Workflow: "ci", Jobs: []plan.Job{j},
						Secrets: plan.WorkflowSecrets{InstallEnv: []string{"base:TOKEN", "prod/eu:TOKEN"}}}})
			},
		} {
			check(t, register())
			for _, name := range []string{"guards", "base"} {
				call(t, s, s.Admin, "DELETE", contextsPath+"/"+name+"?orgId=default", nil).want(t, 409, "Context has 1 pending held run(s)")
			}
			held := decode[adminwire.HeldRunList](t, call(t, s, s.Admin, "GET", "/api/v1/admin/held-runs?runId="+run, nil))
			if len(held.HeldRuns) != 1 {
				t.Fatalf("%s: holds %+v", run, held)
			}
			call(t, s, s.Admin, "POST", "/api/v1/admin/held-runs/decision", adminwire.HoldAnswer{HoldID: held.HeldRuns[0].ID, Decision: "approve", As: "anna"}).want(t, 200, "released")
			call(t, s, s.Admin, "GET", "/api/v1/admin/queue?status=pending", nil).want(t, 200, run)
		}
		for _, name := range []string{"guards", "base"} {
			call(t, s, s.Admin, "DELETE", contextsPath+"/"+name+"?orgId=default", nil).want(t, 200, "deleted")
		}
	})
}
