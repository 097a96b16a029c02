package adminapi_test

import (
	"context"
	"testing"

	"kici/internal/server/fleet"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestHostsAreDeclaredShownAndForgotten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		const host = "/api/v1/admin/hosts/web-3"
		call(t, s, s.Owner, "GET", host, nil).want(t, 404, `{"error":"Host not found"}`)
		call(t, s, s.Owner, "PUT", host, `{"labels":["web"],"properties":{"rack":7},"address":"w3"}`).want(t, 201, `"labels":["web"]`)
		call(t, s, s.Owner, "PUT", host, `{"labels":["db"]}`).want(t, 200, `"uninitialized":true`)
		call(t, s, s.Auditor, "GET", host, nil).want(t, 200, `"sshUser":"root","sshPort":22`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/hosts", nil).want(t, 200, `"agentId":"web-3","lifecycleClass":"static","status":"unreachable","connectedInstanceId":null,"lastSeen":null`)
		for body, want := range map[string]string{
			`{"labels":["kici:x"]}`:                 `"path":"labels"`,
			`{"sshPort":"22"}`:                      `"path":"sshPort"`,
			`{"hostname":"a\u0000b"}`:               `"path":"hostname"`,
			`{"properties":{"a":{}}}`:               `"path":"properties"`,
			`{"sshKeySecret":"one"}`:                `"path":"sshKeySecret"`,
			`{"address":"https://w3"}`:              `"path":"address"`,
			`{"labels":["a\u0001"],"hostname":"b"}`: `"path":"labels"`,
		} {
			call(t, s, s.Owner, "PUT", host, body).want(t, 400, want)
		}
		call(t, s, s.Auditor, "PUT", host, `{}`).want(t, 403, "")
		call(t, s, s.Auditor, "DELETE", host, nil).want(t, 403, "")
		call(t, s, s.Scoped, "GET", host, nil).want(t, 403, "")
		seen := fleet.Agent{ID: "web-3", Lifecycle: fleet.Static, NodeID: "n", ConnectionID: "c"}
		if err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return fleet.Seen(ctx, tx, seen) }); err != nil {
			t.Fatal(err)
		}
		call(t, s, s.Owner, "DELETE", host, nil).want(t, 409, "its agent is connected")
		err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := fleet.AwaitReboot(ctx, tx, "web-3", "c", 1_767_226_500_000)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		call(t, s, s.Auditor, "GET", host, nil).want(t, 200, `"rebootUntil":"2026-01-01T00:15:00.000Z"`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/hosts", nil).want(t, 200, `"rebootUntil":"2026-01-01T00:15:00.000Z"`)
		err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := fleet.Gone(ctx, tx, "web-3", "c", 9)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		call(t, s, s.Owner, "DELETE", host, nil).want(t, 200, `{"deleted":true}`)
		call(t, s, s.Owner, "DELETE", host, nil).want(t, 404, `{"error":"Host not found"}`)
	})
}
