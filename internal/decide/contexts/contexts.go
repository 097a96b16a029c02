// Package contexts decides whatever has to do with named contexts, the deployment targets that own variables, select
// secrets and guard jobs: which context a name means, which secrets and variables a job gets, what keeps it waiting and
// who may let it go. Everything here is a function of its arguments; time comes in as milliseconds, or goes out as a
// duration from now.
package contexts
