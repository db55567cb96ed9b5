"""What is to be solved: distributions of random instances. One file per problem."""
