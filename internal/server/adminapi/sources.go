package adminapi

import (
	"encoding/json"
	"net/http"
	"net/url"

	"kici/internal/core/adminwire"
	"kici/internal/server/forge"
)

// createSource makes a generic source, or a local one when localConfig says where its repositories lie. Its deliveries are
// proven by hmac_sha256 unless the body says otherwise, and a method that needs a secret is refused without one: an open
// source must be asked for by name.
func (a *API) createSource(r *http.Request) (answer, error) {
	var members map[string]json.RawMessage
	if err := read(r, &members); err != nil {
		return answer{}, err
	}
	var org string
	if raw := members["orgId"]; raw == nil || json.Unmarshal(raw, &org) != nil || org == "" {
		return answer{}, invalid(problem("orgId", "required", "orgId is required"))
	}
	ofOrg(r, org)
	settings := forge.Settings{Options: forge.DefaultOptions(), Verification: forge.Verification{Method: forge.MethodHMAC}}
	if members["verificationConfig"] == nil {
		members["verificationConfig"] = json.RawMessage("{}") // so that what the method needs is asked for
	}
	if err := change(&settings, members); err != nil {
		return answer{}, err
	}
	if err := checkProvider(members, settings); err != nil {
		return answer{}, err
	}
	src, err := a.Sources.Create(r.Context(), org, settings)
	if err != nil {
		return answer{}, err
	}
	a.note(r, "source.create", "source", src.ID)
	return created(adminwire.OneSource{Source: a.view(src)})
}

// listSources needs the organisation: a list over all of them would be one nobody may see.
func (a *API) listSources(r *http.Request) (answer, error) {
	if err := required(r, "orgId"); err != nil {
		return answer{}, err
	}
	sources, err := a.Sources.List(r.Context(), r.URL.Query().Get("orgId"), truthy(r, "includeDeleted"))
	if err != nil {
		return answer{}, err
	}
	out := adminwire.SourceList{Sources: make([]adminwire.Source, len(sources))}
	for i, src := range sources {
		out.Sources[i] = a.view(src)
	}
	return ok(out)
}

// showSource shows a deleted source too, since runs may still name it.
func (a *API) showSource(r *http.Request) (answer, error) {
	src, err := a.Sources.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.OneSource{Source: a.view(src)})
}

// changeSource takes effect with the next delivery, on every node.
func (a *API) changeSource(r *http.Request) (answer, error) {
	var members map[string]json.RawMessage
	if err := read(r, &members); err != nil {
		return answer{}, err
	}
	src, err := a.Sources.Update(r.Context(), r.PathValue("id"), func(s *forge.Settings) error { return change(s, members) })
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.OneSource{Source: a.view(src)})
}

// deleteSource hides the source and frees its name; with ?hard=true the row goes, and with it what its runs could name.
func (a *API) deleteSource(r *http.Request) (answer, error) {
	id, hard := r.PathValue("id"), truthy(r, "hard")
	remove := a.Sources.Delete
	if hard {
		remove = a.Sources.DeleteHard
	}
	if err := remove(r.Context(), id); err != nil {
		return answer{}, err
	}
	return ok(map[string]bool{"deleted": true, "hard": hard})
}

func (a *API) enableSource(r *http.Request) (answer, error)  { return a.setEnabled(r, true) }
func (a *API) disableSource(r *http.Request) (answer, error) { return a.setEnabled(r, false) }

func (a *API) setEnabled(r *http.Request, enabled bool) (answer, error) {
	id := r.PathValue("id")
	if err := a.Sources.SetEnabled(r.Context(), id, enabled); err != nil {
		return answer{}, err
	}
	return ok(map[string]bool{"enabled": enabled})
}

// trigger starts what a push would start. It answers when the delivery is stored; its runs follow.
func (a *API) trigger(r *http.Request) (answer, error) {
	var in adminwire.Trigger
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	if in.Repo == "" {
		return answer{}, invalid(problem("repo", "required", "repo is required"))
	}
	if a.Trigger == nil {
		return answer{}, refuse(http.StatusServiceUnavailable, "Runs cannot be started on this instance")
	}
	id := r.PathValue("id")
	delivery, sha, err := a.Trigger.Trigger(r.Context(), id, in.Repo, in.Ref, caller(r).Label)
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusAccepted, adminwire.Triggered{DeliveryID: delivery, SHA: sha}}, nil
}

// view is a source as the API shows it, its secrets masked.
func (a *API) view(src forge.Source) adminwire.Source {
	out := adminwire.Source{
		ID: src.ID, OrgID: src.OrgID, Name: src.Name, ProviderType: src.Provider, RoutingKey: src.RoutingKey, Enabled: src.Enabled,
		VerificationMethod: src.Method, EventTypeHeader: orNull(src.EventTypeHeader), EventTypePath: orNull(src.EventTypePath),
		IdempotencyKeyHeader: orNull(src.IdempotencyKeyHeader), IdempotencyKeyPath: orNull(src.IdempotencyKeyPath),
		DedupWindowSeconds: int64(src.DedupWindow.Seconds()), MaxPayloadBytes: src.MaxPayloadBytes, AllowedEvents: src.AllowedEvents,
		StripHeaders: src.StripHeaders, RateLimitRPM: src.RateLimitRPM, CreatedAt: adminwire.At(src.CreatedAt), UpdatedAt: adminwire.At(src.UpdatedAt),
		DeletedAt:   adminwire.At(src.DeletedAt),
		WebhookPath: "/webhook/" + url.PathEscape(src.OrgID) + "/generic/" + url.PathEscape(src.Name),
	}
	if src.Local != nil {
		out.LocalConfig = &adminwire.LocalConfig{RepoBasePath: src.Local.RepoBasePath, CloneURLBase: src.Local.CloneURLBase}
	}
	// A verification that cannot be read, for want of its key, must not hide the source that has to be mended.
	if v, err := a.Sources.Verification(src); err == nil {
		if raw, err := json.Marshal(v.Config()); err == nil {
			out.VerificationConfig = raw
		}
	}
	return out
}
