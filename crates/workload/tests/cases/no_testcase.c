char *testcase_description = "forgot something";

void testcase_prepare(unsigned long nr_tasks) { }
