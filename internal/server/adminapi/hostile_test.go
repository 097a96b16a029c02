package adminapi_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kici/internal/server/adminapi"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// bodies are requests that store text, by the route. A route that is not here gets everyBody.
var bodies = map[string]string{
	"POST /api/v1/admin/tokens":                         `{"label":"l","role":"auditor","routingKey":"generic:default:s","subject":"s"}`,
	"POST /api/v1/agent-tokens":                         `{"labels":["l"],"mandatoryLabels":["m"],"createdBy":"c"}`,
	"POST /api/v1/admin/secrets/scopes":                 `{"orgId":"default","scope":"a/b"}`,
	"PUT /api/v1/admin/secrets/scopes/rename":           `{"orgId":"default","oldScope":"a/b","newScope":"a/c"}`,
	"POST /api/v1/admin/secrets/purge":                  `{"orgId":"default"}`,
	"PUT /api/v1/admin/secrets/{org}/{scope}/{key}":     `{"value":"v"}`,
	"POST /api/v1/admin/generic-sources":                `{"orgId":"default","name":"n","verificationConfig":{"secret":"0123456789abcdef"},"eventTypeHeader":"x-event","eventTypePath":"$.type","allowedEvents":["push"],"stripHeaders":["cookie"]}`,
	"POST /api/v1/admin/generic-sources/{id}/trigger":   `{"repo":"app","ref":"main","event":"push"}`,
	"POST /api/v1/admin/contexts":                       `{"orgId":"default","name":"n","type":"glob","globPattern":"n/*","branchRestrictions":["main"],"requiredReviewers":["u"],"minimumTrust":"known"}`,
	"POST /api/v1/admin/contexts/templates":             `{"orgId":"default","templateName":"t","variables":{"K":"v"}}`,
	"POST /api/v1/admin/contexts/{name}/bind":           `{"orgId":"default","scopePattern":"a/**","hostPattern":"web-*"}`,
	"PATCH /api/v1/admin/contexts/{name}/policy":        `{"orgId":"default","branchRestrictions":["main"],"requiredReviewers":["u"]}`,
	"PUT /api/v1/admin/contexts/{name}/variables/{key}": `{"value":"v","routingKey":"generic:default:s"}`,
	"POST /api/v1/admin/runs/{run}/cancel":              `{"force":true,"reason":"r"}`,
	"POST /api/v1/admin/held-runs/decision":             `{"holdId":"h","decision":"approve","as":"anna","comment":"c"}`,
	"POST /api/v1/admin/execution/purge-stale":          `{"routingKey":"generic:default:s"}`,
	"PATCH /api/v1/admin/org-settings/global-workflows": `{"customerId":"default","allowSelfApproval":false}`,
	"PUT /api/v1/admin/hosts/{agent}":                   `{"labels":["web"],"properties":{"rack":"r"},"hostname":"h","address":"a","sshUser":"u","sshKeySecret":"a/K"}`,
}

// soiled gives the document once for each text in it, with the ugly one there, and for each name of a free-form member.
func soiled(doc any, ugly string) (out []any) {
	switch v := doc.(type) {
	case string:
		return []any{ugly}
	case []any:
		for i := range v {
			for _, one := range soiled(v[i], ugly) {
				list := slices.Clone(v)
				list[i] = one
				out = append(out, list)
			}
		}
	case map[string]any:
		for key := range v {
			for _, one := range soiled(v[key], ugly) {
				object := maps.Clone(v)
				object[key] = one
				out = append(out, object)
			}
		}
		object := maps.Clone(v)
		object[ugly] = ugly
		out = append(out, object)
	}
	return out
}

// TestNoTextBreaksARoute sends to every route that changes something texts that a database would refuse: one after the
// other in each place of the body, of the path and of the query. NUL is refused by its place, but in the value of a secret,
// and bad UTF-8 replaced; it is never a failure of the server.
func TestNoTextBreaksARoute(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1")
		call(t, s, s.Owner, "POST", "/api/v1/admin/contexts", bodies["POST /api/v1/admin/contexts"]).want(t, 201, "")
		seen := map[string]bool{}
		for _, r := range adminapi.Routes(s.API) {
			method, path := filled(r.Pattern)
			for _, bad := range []string{"%00", "%ff"} {
				if strings.Contains(r.Pattern, "{") {
					call(t, s, s.Owner, method, path+bad, nil).want(t, 400, "malformed value for a typed field")
				}
				call(t, s, s.Owner, method, path+"?orgId=default&limit=1&x=a"+bad+"b", nil).want(t, 400, "malformed value for a typed field")
			}
			if method == http.MethodGet || method == http.MethodDelete {
				continue
			}
			body := bodies[r.Pattern]
			seen[r.Pattern] = body != ""
			if body == "" {
				body = `{"orgId":"default","name":"n","label":"l","reason":"r","value":"v","action":"a"}`
			}
			path = strings.NewReplacer("/contexts/0", "/contexts/n", "/runs/0", "/runs/r1", "/{org}", "/default").Replace(path)
			var doc any
			if err := json.Unmarshal([]byte(body), &doc); err != nil {
				t.Fatalf("%s: %v", r.Pattern, err)
			}
			for _, one := range soiled(doc, "UGLY") {
				raw, err := json.Marshal(one)
				if err != nil {
					t.Fatal(err)
				}
				for _, ugly := range []string{`a\u0000b`, "a\xffb", `a\ud800b`} {
					sent := strings.ReplaceAll(string(raw), "UGLY", ugly)
					got := call(t, s, s.Owner, method, path, sent)
					if got.status >= 500 && got.status != http.StatusServiceUnavailable {
						t.Errorf("%s with %q: %d %s", r.Pattern, sent, got.status, got.body)
					}
					if seen[r.Pattern] && ugly == `a\u0000b` && got.status != 400 && r.Pattern != "PUT /api/v1/admin/secrets/{org}/{scope}/{key}" {
						t.Errorf("%s takes %q: %d %s", r.Pattern, sent, got.status, got.body)
					}
					if strings.Contains(got.body, `\u0000`) {
						t.Errorf("%s with %q answers with NUL: %s", r.Pattern, sent, got.body)
					}
				}
			}
		}
		for pattern := range bodies {
			if !seen[pattern] {
				t.Errorf("there is no route %s", pattern)
			}
		}
		noNUL(t, db)
	})
}

// TestNoEnormousTextBreaksARoute puts a text that no index takes into each place of the body, the path and the query.
func TestNoEnormousTextBreaksARoute(t *testing.T) {
	var random strings.Builder // what a database cannot compress
	for i := range 3000 {
		fmt.Fprintf(&random, "%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
	}
	enormous := random.String()[:20_000]
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1")
		fails := func(method, path, body, where string) {
			if got := call(t, s, s.Owner, method, path, body); got.status >= 500 && got.status != http.StatusServiceUnavailable {
				t.Errorf("%s with an enormous %s: %d %s", method+" "+path[:min(len(path), 80)], where, got.status, got.body)
			}
		}
		for _, r := range adminapi.Routes(s.API) {
			if strings.HasSuffix(r.Pattern, "/stream") {
				continue // it does not end before the run
			}
			call(t, s, s.Owner, "POST", "/api/v1/admin/contexts", bodies["POST /api/v1/admin/contexts"]) // a route before may have deleted it
			method, path := filled(r.Pattern)
			path = strings.NewReplacer("/contexts/0", "/contexts/n", "/runs/0", "/runs/r1").Replace(path)
			body := bodies[r.Pattern]
			if strings.Contains(r.Pattern, "{") && !strings.HasPrefix(r.Pattern, "PUT "+"/api/v1/admin/contexts") {
				fails(method, strings.ReplaceAll(path, "0", enormous), body, "path")
			}
			for _, name := range []string{"orgId", "routingKey", "status", "workflowName", "repo", "deliveryId", "event", "action", "runId", "cursor", "q", "outputKey", "name", "from", "limit"} {
				fails(method, path+"?orgId=default&customerId=default&"+name+"="+enormous, body, name)
			}
			if method == http.MethodGet || method == http.MethodDelete || body == "" {
				continue
			}
			var doc any
			check(t, json.Unmarshal([]byte(body), &doc))
			for _, one := range soiled(doc, "UGLY") {
				raw, err := json.Marshal(one)
				check(t, err)
				fails(method, path+"?orgId=default", strings.ReplaceAll(string(raw), "UGLY", enormous), "text in "+string(raw))
			}
		}
	})
}

// noNUL requires of SQLite what PostgreSQL enforces.
func noNUL(t *testing.T, db *store.DB) {
	t.Helper()
	if _, err := store.Texts(t.Context(), db.Read(), "SELECT sqlite_version()"); err != nil {
		return
	}
	columns, err := store.Texts(t.Context(), db.Read(), `SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
WHERE m.type = 'table' AND c.type = 'TEXT'`)
	if err != nil {
		t.Fatal(err)
	}
	if len(columns) < 50 {
		t.Errorf("only %d columns with texts were found", len(columns))
	}
	for _, name := range columns {
		table, column, _ := strings.Cut(name, ".")
		found, err := store.Texts(t.Context(), db.Read(), "SELECT "+column+" FROM "+table+" WHERE instr(CAST("+column+" AS BLOB), x'00') > 0")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range found {
			t.Errorf("column %s holds NUL: %q", name, text)
		}
	}
}

// TestNoShapeOfABodyBreaksARoute sends what is JSON and not what the route expects, and what is not JSON.
func TestNoShapeOfABodyBreaksARoute(t *testing.T) {
	deep := strings.Repeat(`{"orgId":`, 5000) + "1" + strings.Repeat("}", 5000)
	shapes := []string{"null", "[]", `"text"`, "5", "true", "{", "{}{}", strings.Repeat("[", 20_000), deep, "\xff", `{"orgId":null}`}
	s := newRig(t, storetest.SQLite(t))
	for _, r := range adminapi.Routes(s.API) {
		method, path := filled(r.Pattern)
		if method == http.MethodGet {
			continue
		}
		sent := slices.Clone(shapes)
		var doc map[string]any
		if bodies[r.Pattern] != "" {
			check(t, json.Unmarshal([]byte(bodies[r.Pattern]), &doc))
		}
		for name := range doc { // each member in each shape but its own
			for _, odd := range []any{nil, true, 1.5, -1, 1e300, "text", []any{}, []any{nil}, map[string]any{"a": nil}} {
				one := maps.Clone(doc)
				one[name] = odd
				raw, err := json.Marshal(one)
				check(t, err)
				sent = append(sent, string(raw))
			}
		}
		for _, body := range sent {
			got := call(t, s, s.Owner, method, path+"?orgId=default", body)
			if got.status >= 500 && got.status != http.StatusServiceUnavailable {
				t.Errorf("%s with %.200q: %d %s", r.Pattern, body, got.status, got.body)
			}
		}
	}
}
