#define DESCRIPTION "has a header of its own"
