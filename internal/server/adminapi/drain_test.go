package adminapi_test

import (
	"context"
	"testing"
	"time"

	"kici/internal/server/dispatch"
	"kici/internal/server/store/storetest"
)

// fakeDispatcher has two jobs running.
type fakeDispatcher struct {
	draining bool
	changes  int
}

func (f *fakeDispatcher) Drain(_ context.Context, on bool) error {
	if f.draining != on {
		f.changes++
	}
	f.draining = on
	return nil
}

func (f *fakeDispatcher) Draining() bool                       { return f.draining }
func (f *fakeDispatcher) Running(context.Context) (int, error) { return 2, nil }
func (f *fakeDispatcher) Depth() dispatch.Depth {
	return dispatch.Depth{Pending: 7, Dispatched: 2, OldestAge: 3 * time.Second, Pressed: true}
}

func TestDrain(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	const path = "/api/v1/admin/orchestrator/drain"
	call(t, s, s.Owner, "GET", path, nil).want(t, 404, "Not found") // a node that gives out nothing has no such route
	d := &fakeDispatcher{}
	s.API.Dispatcher = d
	tests := []struct {
		name, token, method, body string
		status                    int
		want                      string
	}{
		{"at first", s.Owner, "GET", "", 200, `{"draining":false,"jobsRunning":2}`},
		{"drain", s.Admin, "POST", `{"action":"drain"}`, 200, `{"draining":true,"jobsRunning":2}`},
		{"twice", s.Admin, "POST", `{"action":"drain"}`, 200, `{"draining":true,"jobsRunning":2}`},
		{"resume", s.Owner, "POST", `{"action":"resume"}`, 200, `{"draining":false,"jobsRunning":2}`},
		{"another action", s.Owner, "POST", `{"action":"stop"}`, 400, `"path":"action"`},
		{"none", s.Owner, "POST", `{}`, 400, "Validation error"},
		{"an auditor", s.Auditor, "GET", "", 403, ""},
		{"an auditor who acts", s.Auditor, "POST", `{"action":"drain"}`, 403, ""},
		{"a scoped token", s.Scoped, "POST", `{"action":"drain"}`, 403, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var body any
			if tt.body != "" {
				body = tt.body
			}
			call(t, s, tt.token, tt.method, path, body).want(t, tt.status, tt.want)
		})
	}
	if d.changes != 2 {
		t.Errorf("%d changes, want 2", d.changes)
	}
	call(t, s, s.Owner, "GET", "/api/v1/admin/access-log?action=orchestrator.drain", nil).want(t, 200, `"orchestrator.drain"`)
	call(t, s, s.Owner, "GET", "/api/v1/admin/access-log?action=orchestrator.resume", nil).want(t, 200, `"orchestrator.resume"`)
}

func TestTheQueueIsListedWithItsDepth(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.API.Dispatcher = &fakeDispatcher{draining: true}
	call(t, s, s.Owner, "GET", "/api/v1/admin/queue", nil).want(t, 200,
		`"depth":{"pending":7,"dispatched":2,"oldestAgeMs":3000,"backpressure":true,"draining":true}`)
	call(t, s, s.Scoped, "GET", "/api/v1/admin/queue", nil).want(t, 200, `{"entries":[]}`)
}
