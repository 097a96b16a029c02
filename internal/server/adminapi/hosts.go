package adminapi

import (
	"context"
	"errors"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/server/auth"
	"kici/internal/server/fleet"
	"kici/internal/server/report"
	"kici/internal/server/store"
)

// hostRoutes are about single hosts of the roster.
func (a *API) hostRoutes() []route {
	return []route{
		{"GET " + base + "/hosts", auth.RunRead, true, a.listHosts},
		{"GET " + base + "/hosts/{agent}", auth.ContextRead, true, a.showHost},
		{"PUT " + base + "/hosts/{agent}", auth.ContextUpdate, true, a.declareHost},
		{"DELETE " + base + "/hosts/{agent}", auth.ContextDelete, true, a.forgetHost},
	}
}

// listHosts shows agents that are gone, too: an operator looks for the machine that is missing.
func (a *API) listHosts(r *http.Request) (answer, error) {
	hosts, err := report.Hosts(r.Context(), a.DB.Read())
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.HostList{Hosts: hosts})
}

// showHost shows one of them.
func (a *API) showHost(r *http.Request) (answer, error) {
	h, err := report.HostOf(r.Context(), a.DB.Read(), r.PathValue("agent"))
	if errors.Is(err, report.ErrNotFound) {
		return answer{}, gone("Host not found")
	}
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.OneHost{Host: h})
}

// declareHost writes a host down, or anew: what the body leaves out is not kept.
func (a *API) declareHost(r *http.Request) (answer, error) {
	var in adminwire.Declaration
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	h := fleet.Host{AgentID: r.PathValue("agent"), Labels: in.Labels, Properties: in.Properties, Hostname: in.Hostname,
		Reach: fleet.Reach{Address: in.Address, User: in.SSHUser, Port: in.SSHPort, KeySecret: in.SSHKeySecret, HostKey: in.SSHHostKey}}
	isNew := false
	err := a.DB.Write(r.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		isNew, err = fleet.Declare(ctx, tx, h, a.Clock.Millis())
		return err
	})
	if wrong, ok := errors.AsType[*fleet.InvalidHostError](err); ok {
		return answer{}, invalid(problem(wrong.Field, "invalid", "must be "+wrong.Right))
	}
	if err != nil {
		return answer{}, err
	}
	shown, err := a.showHost(r)
	if isNew {
		shown.status = http.StatusCreated
	}
	return shown, err
}

// forgetHost removes a declaration and what is known of an agent that is gone.
func (a *API) forgetHost(r *http.Request) (answer, error) {
	existed := false
	err := a.DB.Write(r.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		existed, err = fleet.ForgetHost(ctx, tx, r.PathValue("agent"))
		return err
	})
	switch {
	case errors.Is(err, fleet.ErrConnected):
		return answer{}, refuse(http.StatusConflict, err.Error())
	case err != nil:
		return answer{}, err
	case !existed:
		return answer{}, gone("Host not found")
	}
	return ok(map[string]bool{"deleted": true})
}
