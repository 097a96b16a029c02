package adminapi

// Route is a route as the sweep of the tests sees it.
type Route struct {
	Pattern  string
	Unscoped bool
}

// Routes lists every route that needs a token.
func Routes(a *API) []Route {
	var out []Route
	for _, r := range a.routes() {
		out = append(out, Route{r.pattern, r.unscoped})
	}
	return out
}
