package adminapi

import (
	"encoding/json"
	"net/http"

	"kici/internal/core/adminwire"
	decide "kici/internal/decide/contexts"
	"kici/internal/server/auth"
	"kici/internal/server/contexts"
)

// contextRoutes serves contexts by their name and by the one that they had before.
func (a *API) contextRoutes() (all []route) {
	for _, path := range []string{base + "/contexts", base + "/environments"} {
		all = append(all,
			route{"POST " + path, auth.SecretWrite, true, a.putContext},
			route{"POST " + path + "/templates", auth.SecretWrite, true, a.putTemplate},
			route{"POST " + path + "/{name}/bind", auth.SecretWrite, true, a.bindContext},
			route{"PATCH " + path + "/{name}/policy", auth.SecretWrite, true, a.changePolicy},
			route{"GET " + path, auth.SecretRead, true, a.listContexts},
			route{"GET " + path + "/{name}", auth.SecretRead, true, a.showNamedContext},
			route{"DELETE " + path + "/{name}", auth.SecretWrite, true, a.deleteContext},
			route{"GET " + path + "/{name}/variables", auth.SecretRead, true, a.listVariables},
			route{"PUT " + path + "/{name}/variables/{key}", auth.SecretWrite, true, a.setVariable},
			route{"DELETE " + path + "/{name}/variables/{key}", auth.SecretDelete, true, a.deleteVariable},
		)
	}
	return all
}

// members are the members of a body that names an organisation.
type members map[string]json.RawMessage

// readMembers reads a body and takes the organisation out of it.
func readMembers(r *http.Request) (m members, org string, err error) {
	if err := read(r, &m); err != nil {
		return nil, "", err
	}
	org, err = m.text("orgId")
	if err == nil && org == "" {
		err = refuse(http.StatusBadRequest, "orgId required")
	}
	ofOrg(r, org)
	return m, org, err
}

// text takes a text out of the members, "" when it is absent.
func (m members) text(name string) (text string, err error) {
	raw := m[name]
	delete(m, name)
	if raw == nil {
		return "", nil
	}
	if json.Unmarshal(raw, &text) != nil {
		return "", invalid(problem(name, "invalid_type", "expected string"))
	}
	return text, nil
}

// putContext makes a context, or changes the one of that name.
func (a *API) putContext(r *http.Request) (answer, error) {
	m, org, err := readMembers(r)
	if err != nil {
		return answer{}, err
	}
	name, err := m.text("name")
	if err != nil {
		return answer{}, err
	}
	c, isNew, err := a.Contexts.Put(r.Context(), caller(r).TokenID, org, name, m.apply, nil)
	if err != nil {
		return answer{}, err
	}
	a.note(r, "context.create", "context", name)
	return put(adminwire.ContextPut{EnvID: c.ID, ContextID: c.ID, Created: isNew})
}

// putTemplate makes or changes a context together with variables. A context that is there keeps its type.
func (a *API) putTemplate(r *http.Request) (answer, error) {
	m, org, err := readMembers(r)
	if err != nil {
		return answer{}, err
	}
	name, err := m.text("templateName")
	if err != nil {
		return answer{}, err
	}
	variables := map[string]string{}
	if raw := m["variables"]; raw != nil && json.Unmarshal(raw, &variables) != nil {
		return answer{}, invalid(problem("variables", "invalid_type", "expected object of strings"))
	}
	c, isNew, err := a.Contexts.Put(r.Context(), caller(r).TokenID, org, name, m.applyTemplate, variables)
	if err != nil {
		return answer{}, err
	}
	a.note(r, "context.template.upsert", "context", name)
	set := len(variables)
	return put(adminwire.ContextPut{EnvID: c.ID, ContextID: c.ID, Created: isNew, VariablesSet: &set})
}

func put(body adminwire.ContextPut) (answer, error) {
	if body.Created {
		return created(body)
	}
	return ok(body)
}

// bindContext is no error for a binding that exists.
func (a *API) bindContext(r *http.Request) (answer, error) {
	m, org, err := readMembers(r)
	if err != nil {
		return answer{}, err
	}
	var b decide.Binding
	f := fields{members: m}
	set(&f, "scopePattern", &b.ScopePattern, "")
	set(&f, "hostPattern", &b.HostPattern, "")
	if b.ScopePattern == "" {
		f.problems = append(f.problems, problem("scopePattern", "required", "scopePattern is required"))
	}
	if len(f.problems) > 0 {
		return answer{}, invalid(f.problems...)
	}
	isNew, err := a.Contexts.Bind(r.Context(), org, r.PathValue("name"), b)
	switch {
	case err != nil:
		return answer{}, a.unknownContext(org, r.PathValue("name"), err)
	case isNew:
		return created(adminwire.Created{Created: true})
	}
	return ok(adminwire.Created{})
}

// changePolicy leaves what is not named as it is, and clears what is null.
func (a *API) changePolicy(r *http.Request) (answer, error) {
	m, org, err := readMembers(r)
	if err != nil {
		return answer{}, err
	}
	if !m.anyPolicy() {
		return answer{}, refuse(http.StatusBadRequest, "at least one policy field is required")
	}
	if err := a.Contexts.Update(r.Context(), org, r.PathValue("name"), m.applyPolicy); err != nil {
		return answer{}, a.unknownContext(org, r.PathValue("name"), err)
	}
	return ok(map[string]bool{"updated": true})
}

// listContexts names the secrets that each context selects when it is asked to.
func (a *API) listContexts(r *http.Request) (answer, error) {
	if err := required(r, "orgId"); err != nil {
		return answer{}, err
	}
	all, err := a.Contexts.List(r.Context(), r.URL.Query().Get("orgId"))
	if err != nil {
		return answer{}, err
	}
	rows := make([]adminwire.Context, len(all))
	for i, c := range all {
		rows[i] = contextRow(c)
		if !truthy(r, "includeSecrets") {
			continue
		}
		if rows[i].SecretKeys, err = a.Contexts.SecretKeys(r.Context(), c); err != nil {
			return answer{}, err
		}
	}
	return ok(adminwire.ContextList{Contexts: rows, Environments: rows})
}

// showNamedContext shows values of variables, which are no secrets.
func (a *API) showNamedContext(r *http.Request) (answer, error) {
	c, err := a.named(r)
	if err != nil {
		return answer{}, err
	}
	variables, err := a.variablesOf(r, c)
	if err != nil {
		return answer{}, err
	}
	bindings, err := a.Contexts.Bindings(r.Context(), c.ID)
	if err != nil {
		return answer{}, err
	}
	overrides, err := a.Contexts.Overrides(r.Context(), c.ID)
	if err != nil {
		return answer{}, err
	}
	row := contextRow(c)
	out := adminwire.ContextDetail{Context: row, Environment: row, Variables: variables, Overrides: []adminwire.ContextOverride{},
		Bindings: []adminwire.ContextBinding{}}
	for _, b := range bindings {
		out.Bindings = append(out.Bindings, adminwire.ContextBinding{ScopePattern: b.ScopePattern, HostPattern: b.HostPattern, CreatedAt: adminwire.At(b.CreatedAt)})
	}
	for _, o := range overrides {
		out.Overrides = append(out.Overrides, adminwire.ContextOverride{RoutingKey: o.RoutingKey, Key: o.Key, Value: o.Value})
	}
	return ok(out)
}

// named is the context of the path, of the organisation that the query names.
func (a *API) named(r *http.Request) (contexts.Context, error) {
	if err := required(r, "orgId"); err != nil {
		return contexts.Context{}, err
	}
	org, name := r.URL.Query().Get("orgId"), r.PathValue("name")
	c, err := a.Contexts.Find(r.Context(), org, name)
	return c, a.unknownContext(org, name, err)
}

// deleteContext is refused while jobs wait at the gates of the context.
func (a *API) deleteContext(r *http.Request) (answer, error) {
	if err := required(r, "orgId"); err != nil {
		return answer{}, err
	}
	org := r.URL.Query().Get("orgId")
	if err := a.Contexts.Delete(r.Context(), org, r.PathValue("name")); err != nil {
		return answer{}, a.unknownContext(org, r.PathValue("name"), err)
	}
	return ok(map[string]bool{"deleted": true})
}

func (a *API) listVariables(r *http.Request) (answer, error) {
	c, err := a.named(r)
	if err != nil {
		return answer{}, err
	}
	variables, err := a.variablesOf(r, c)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.ContextVariables{Variables: variables})
}

func (a *API) variablesOf(r *http.Request, c contexts.Context) ([]adminwire.ContextVariable, error) {
	stored, err := a.Contexts.Variables(r.Context(), c.ID)
	out := make([]adminwire.ContextVariable, len(stored))
	for i, v := range stored {
		out[i] = adminwire.ContextVariable{Key: v.Key, Value: v.Value, Locked: v.Locked, UpdatedAt: adminwire.At(v.UpdatedAt)}
	}
	return out, err
}

// setVariable sets a variable, or with a routing key its value for the runs of one source. Its value is no secret, but an
// absent one is refused all the same: a mistyped member must not empty it.
func (a *API) setVariable(r *http.Request) (answer, error) {
	if err := required(r, "orgId"); err != nil {
		return answer{}, err
	}
	var in adminwire.SetVariable
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	org, name, key := r.URL.Query().Get("orgId"), r.PathValue("name"), r.PathValue("key")
	var err error
	switch {
	case in.Value == nil:
		return answer{}, invalid(problem("value", "required", "value is required"))
	case in.RoutingKey != "" && in.Locked:
		return answer{}, invalid(problem("locked", "invalid", "the value for one source cannot be locked"))
	case in.RoutingKey != "":
		err = a.Contexts.Override(r.Context(), org, name, decide.Override{RoutingKey: in.RoutingKey, Key: key, Value: *in.Value})
	default:
		err = a.Contexts.SetVariable(r.Context(), org, name, decide.Variable{Key: key, Value: *in.Value, Locked: in.Locked})
	}
	if err != nil {
		return answer{}, a.unknownContext(org, name, err)
	}
	return ok(map[string]bool{"set": true})
}

// deleteVariable is no error when there is none, so that a script may repeat it.
func (a *API) deleteVariable(r *http.Request) (answer, error) {
	if err := required(r, "orgId"); err != nil {
		return answer{}, err
	}
	q, name, key := r.URL.Query(), r.PathValue("name"), r.PathValue("key")
	var err error
	if routingKey := q.Get("routingKey"); routingKey != "" {
		err = a.Contexts.DeleteOverride(r.Context(), q.Get("orgId"), name, routingKey, key)
	} else {
		err = a.Contexts.DeleteVariable(r.Context(), q.Get("orgId"), name, key)
	}
	if err != nil {
		return answer{}, a.unknownContext(q.Get("orgId"), name, err)
	}
	return ok(map[string]bool{"deleted": true})
}
