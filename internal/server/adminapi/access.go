package adminapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"kici/internal/core/ci"
	"kici/internal/server/auth"
)

// access is what the access log says of a call of a route.
type access struct {
	action string // such as run.cancel; how often it is written depends on it
	target string // type of what it is about
	param  string // of the path, that names it; "" for what has no id
}

// accesses gives the access of every route, by its pattern. A route that is not here is noted by its permission, and
// always: what nobody has judged harmless is not left out.
var accesses = map[string]access{
	"POST " + base + "/tokens":                                        {"token.create", "token", ""},
	"GET " + base + "/tokens":                                         {"token.list.read", "token", ""},
	"DELETE " + base + "/tokens/{id}":                                 {"token.revoke", "token", "id"},
	"POST /api/v1/agent-tokens":                                       {"agent_token.create", "token", ""},
	"GET /api/v1/agent-tokens":                                        {"agent_token.list.read", "token", ""},
	"DELETE /api/v1/agent-tokens/{id}":                                {"agent_token.revoke", "token", "id"},
	"GET " + base + "/secrets/scopes":                                 {"secret_scope.list.read", "secret_scope", ""},
	"GET " + base + "/secrets/keys":                                   {"secret.list.read", "secret_scope", ""},
	"POST " + base + "/secrets/scopes":                                {"secret_scope.create", "secret_scope", ""},
	"PUT " + base + "/secrets/scopes/rename":                          {"secret_scope.rename", "secret_scope", ""},
	"DELETE " + base + "/secrets/scopes/{org}/{scope}":                {"secret_scope.delete", "secret_scope", "scope"},
	"PUT " + base + "/secrets/{org}/{scope}/{key}":                    {"secret.set", "secret_scope", "scope"},
	"DELETE " + base + "/secrets/{org}/{scope}/{key}":                 {"secret.delete", "secret_scope", "scope"},
	"POST " + base + "/secrets/purge":                                 {"secret.purge", "secret_scope", ""},
	"POST " + base + "/contexts":                                      {"context.create", "context", ""},
	"POST " + base + "/contexts/templates":                            {"context.template.upsert", "context", ""},
	"POST " + base + "/contexts/{name}/bind":                          {"context.bind", "context", "name"},
	"PATCH " + base + "/contexts/{name}/policy":                       {"context.policy.update", "context", "name"},
	"GET " + base + "/contexts":                                       {"context.list.read", "context", ""},
	"GET " + base + "/contexts/{name}":                                {"context.get.read", "context", "name"},
	"DELETE " + base + "/contexts/{name}":                             {"context.delete", "context", "name"},
	"GET " + base + "/contexts/{name}/variables":                      {"variable.list.read", "context", "name"},
	"PUT " + base + "/contexts/{name}/variables/{key}":                {"variable.set", "context", "name"},
	"DELETE " + base + "/contexts/{name}/variables/{key}":             {"variable.delete", "context", "name"},
	"POST " + base + "/environments":                                  {"context.create", "context", ""},
	"POST " + base + "/environments/templates":                        {"context.template.upsert", "context", ""},
	"POST " + base + "/environments/{name}/bind":                      {"context.bind", "context", "name"},
	"PATCH " + base + "/environments/{name}/policy":                   {"context.policy.update", "context", "name"},
	"GET " + base + "/environments":                                   {"context.list.read", "context", ""},
	"GET " + base + "/environments/{name}":                            {"context.get.read", "context", "name"},
	"DELETE " + base + "/environments/{name}":                         {"context.delete", "context", "name"},
	"GET " + base + "/environments/{name}/variables":                  {"variable.list.read", "context", "name"},
	"PUT " + base + "/environments/{name}/variables/{key}":            {"variable.set", "context", "name"},
	"DELETE " + base + "/environments/{name}/variables/{key}":         {"variable.delete", "context", "name"},
	"POST " + base + "/rotate-key":                                    {"secret_key.rotate", "secret_key", ""},
	"GET " + base + "/audit":                                          {"secret_audit.list.read", "access_log", ""},
	"GET " + base + "/access-log":                                     {"access_log.list.read", "access_log", ""},
	"GET " + base + "/access-log/{id}":                                {"access_log.detail.read", "access_log", "id"},
	"POST " + base + "/generic-sources":                               {"source.create", "source", ""},
	"GET " + base + "/generic-sources":                                {"sources.list.read", "source", ""},
	"GET " + base + "/generic-sources/{id}":                           {"source.get.read", "source", "id"},
	"PATCH " + base + "/generic-sources/{id}":                         {"source.update", "source", "id"},
	"DELETE " + base + "/generic-sources/{id}":                        {"source.delete", "source", "id"},
	"POST " + base + "/generic-sources/{id}/enable":                   {"source.enable", "source", "id"},
	"POST " + base + "/generic-sources/{id}/disable":                  {"source.disable", "source", "id"},
	"POST " + base + "/generic-sources/{id}/trigger":                  {"run.trigger", "source", "id"},
	"GET " + base + "/runs":                                           {"runs.list.read", "run", ""},
	"GET " + base + "/runs/{run}":                                     {"run.detail.read", "run", "run"},
	"GET " + base + "/runs/{run}/jobs":                                {"run.detail.read", "run", "run"},
	"GET " + base + "/runs/{run}/structured":                          {"run.structured.read", "run", "run"},
	"GET " + base + "/runs/{run}/explain":                             {"run.detail.read", "run", "run"},
	"GET " + base + "/runs/{run}/artifacts":                           {"run.artifacts.read", "run", "run"},
	"GET " + base + "/runs/{run}/artifacts/download":                  {"artifact.download", "run", "run"},
	"GET " + base + "/runs/{run}/ephemeral-key":                       {"run.detail.read", "run", "run"},
	"GET " + base + "/runs/{run}/secret-outputs":                      {"secret.list.read", "run", "run"},
	"POST " + base + "/runs/{run}/cancel":                             {"run.cancel", "run", "run"},
	"GET " + base + "/runs/{run}/jobs/{job}/steps/{step}/logs":        {"step.logs.read", "job", "job"},
	"GET " + base + "/runs/{run}/jobs/{job}/steps/{step}/logs/search": {"step.logs.search", "job", "job"},
	"GET " + base + "/runs/{run}/jobs/{job}/steps/{step}/logs/raw":    {"step.logs.download", "job", "job"},
	"GET " + base + "/runs/{run}/events":                              {"run.detail.read", "run", "run"},
	"GET " + base + "/runs/{run}/events/stream":                       {"run.detail.read", "run", "run"},
	"GET " + base + "/runs/{run}/jobs/{job}/context":                  {"run.detail.read", "job", "job"},
	"POST " + base + "/runs/{run}/rerun":                              {"run.rerun", "run", "run"},
	"GET " + base + "/held-runs":                                      {"held_run.list.read", "held_run", ""},
	"POST " + base + "/held-runs/decision":                            {"held_run.decide", "held_run", ""},
	"GET " + base + "/executions":                                     {"runs.list.read", "run", ""},
	"GET " + base + "/executions/{run}":                               {"run.detail.read", "run", "run"},
	"POST " + base + "/execution/purge-stale":                         {"execution.purge", "run", ""},
	"POST " + base + "/queue/clear":                                   {"queue.clear", "queue", ""},
	"GET " + base + "/queue":                                          {"runs.list.read", "queue", ""},
	"GET " + base + "/queue/{id}":                                     {"run.detail.read", "queue", "id"},
	"GET " + base + "/orchestrator/drain":                             {"orchestrator.drain.read", "node", ""},
	"POST " + base + "/orchestrator/drain":                            {"orchestrator.drain", "node", ""},
	"GET " + base + "/hosts":                                          {"fleet.read", "fleet", ""},
	"GET " + base + "/hosts/{agent}":                                  {"fleet.read", "host", "agent"},
	"PUT " + base + "/hosts/{agent}":                                  {"host.declare", "host", "agent"},
	"DELETE " + base + "/hosts/{agent}":                               {"host.remove", "host", "agent"},
	"GET " + base + "/org-settings/global-workflows":                  {"global_workflows.get.read", "org_settings", ""},
	"PATCH " + base + "/org-settings/global-workflows":                {"org_settings.update", "org_settings", ""},
	"POST " + base + "/events/emit":                                   {"event.emit", "event", ""},
	"GET " + base + "/signing-keys":                                   {"signing_key.list.read", "signing_key", ""},
	"POST " + base + "/signing-keys/rotate":                           {"signing_key.activate", "signing_key", ""},
	"POST " + base + "/signing-keys/{kid}/revoke":                     {"signing_key.revoke", "signing_key", "kid"},
	"GET " + base + "/runs/{run}/attestations":                        {"attestations.read", "run", "run"},
	"GET " + base + "/runs/{run}/attestations/{job}/{digest}":         {"attestations.read", "attestation", "digest"},
	"POST " + base + "/attestations/reverify":                         {"attestations.reverify", "attestation", ""},
	"GET " + base + "/event-log":                                      {"event_log.list.read", "event_log", ""},
	"GET " + base + "/event-log/{delivery}":                           {"event_log.detail.read", "event_log", "delivery"},
}

type callKey struct{}

// call is what is found out about a call while it is answered, for its row in the access log.
type call struct {
	noted bool   // the row is written
	org   string // of what it is about
}

func callOf(r *http.Request) *call {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		return c
	}
	return &call{} // nobody looks
}

// ofOrg says of which organisation it is that a call is about.
func ofOrg(r *http.Request, org string) { callOf(r).org = org }

// orgOf is that organisation, where the call names one itself when nobody has said so. "" is the server as a whole.
func orgOf(r *http.Request) string {
	q := r.URL.Query()
	return ci.CutName(cmp.Or(callOf(r).org, r.PathValue("org"), q.Get("orgId"), q.Get("customerId")))
}

// logged runs a handler and writes the access-log row of the call, unless the handler has written its own.
func (a *API) logged(rt route) handler {
	return func(r *http.Request) (answer, error) {
		c := &call{}
		r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
		got, err := rt.do(r)
		if !c.noted {
			a.Tokens.Note(r.Context(), a.judged(accessOf(r, rt), err))
		}
		return got, err
	}
}

// noted says that the call's access-log row is written.
func noted(r *http.Request) { callOf(r).noted = true }

// accessOf is the row about a call that went well.
func accessOf(r *http.Request, rt route) auth.Entry {
	what, known := accesses[rt.pattern]
	if !known {
		what.action = string(rt.permission)
	}
	id := ""
	if what.param != "" {
		id = r.PathValue(what.param)
	}
	return entry(r, what.action, what.target, id)
}

// judged puts into a row how the call ended. What failed inside is named to the log alone.
func (a *API) judged(e auth.Entry, err error) auth.Entry {
	if err == nil {
		return e
	}
	e.Outcome, e.Error = auth.OutcomeError, "Internal server error"
	if refused := known(err); refused != nil {
		e.Error = refused.body.Error
		if refused.status == http.StatusForbidden {
			e.Outcome = auth.OutcomeDenied
		}
	} else if errors.Is(err, context.Canceled) {
		e.Error = "the caller went away"
	}
	return e
}
