// The parameters of matrix products, and the blocks of y that workgroups compute.
//#include product_params
//#include product_blocks
